"""Narrowing a search or a listing the way people say it: by kind of file, and by part of a name."""

from __future__ import annotations

import re

from catalog.core.errors import FilterError
from catalog.core.filters import And, Filter, Op, Or, condition

_KINDS = {
    "md": "markdown mdown mkd",
    "docx doc docm dotx": "word worddocument",
    "pptx ppt pptm ppsx potx": "powerpoint presentation slide slides slideshow",
    "xlsx xls xlsm csv": "excel spreadsheet sheet",
    "ipynb": "notebook jupyter jupyternotebook",
    "html htm xhtml": "web webpage webpages website html htm xhtml",
    "txt text": "text plaintext",
    "rst": "restructuredtext",
    "epub": "ebook book",
    "py": "python",
    "srt vtt sbv": "subtitle subtitles caption captions",
    "srt": "subrip",
    "vtt": "webvtt",
    "video mp4 mkv mov avi webm m4v mpg mpeg wmv flv ogv": "video videos movie film recording",
    "audio mp3 wav m4a flac ogg opus aac wma": "audio sound podcast",
    "image png jpg jpeg gif bmp webp tif tiff svg": "image images picture photo",
    "jpg jpeg": "jpg jpeg",
    "yaml yml": "yaml yml",
    "jsonl ndjson": "jsonl ndjson",
}
_TYPES = {name: types for types, names in _KINDS.items() for name in names.split()}
_EXTENSIONS = frozenset(" ".join(_KINDS).split())
_SUBTITLES = frozenset(["srt", "vtt", "sbv"])
_SUBTITLED = ("video", "audio")  # the types of subtitles that could be read: what they are of
_FILES = re.compile(r"\s+(?:files?|documents?)\Z")
_NAMES = ("path", "title", "media")


def file_type_filter(name: str) -> Filter:
    """Documents of a file type: ``pdf``, ``.PDF``, ``word``, ``slides``, ``web page``, ``video``.

    A kind stands for all its extensions, in any case and with or without a leading dot; what is
    no known kind is taken literally, in lower case, and as a plural (``PDFs``). Subtitles have
    the type of what they belong to, so they are told by their path as well. Raises
    :class:`FilterError` for blank text.
    """
    asked = _told("file type", name).casefold().removeprefix("*").removeprefix(".")
    asked = _FILES.sub("", asked).strip() or asked
    joined = "".join(sign for sign in asked if sign.isalnum())
    known = _TYPES.get(joined) or _TYPES.get(joined.removesuffix("s"), "")
    types = list(dict.fromkeys((*known.split(), asked, _singular(asked))))
    by_type = condition("file_type", Op.IN, types)
    endings = [one for one in types if one in _SUBTITLES]
    if not endings:
        return by_type
    named = (condition("path", Op.TEXT_MATCH_INSENSITIVE, f".{one}") for one in endings)
    timed = condition("file_type", Op.IN, list(_SUBTITLED))
    return Or((by_type, And((timed, Or(tuple(named))))))


def name_filter(part: str) -> Filter:
    """Documents whose path, title or recording holds the text, in any case, sign for sign.

    Raises :class:`FilterError` for blank text.
    """
    asked = _told("name", part)
    parts = (condition(field, Op.TEXT_MATCH_INSENSITIVE, asked) for field in _NAMES)
    return Or(tuple(parts))


def _singular(kind: str) -> str:
    """Without the s of a plural; the kind itself where that would be another one, as of ``css``."""
    bare = kind.removesuffix("s")
    is_plural = bare in _EXTENSIONS or (len(bare) > 2 and not bare.endswith("s"))
    return bare if is_plural else kind


def _told(what: str, given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise FilterError(f"the {what} to narrow by must be some text, not {given!r}")
    return given.strip()
