"""What is embedded besides a passage as a whole: where it stands, and parts of speech."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from llama_index.core.schema import TextNode

from catalog.ingest.nodes import ChunkNode


def split_by_time(node: ChunkNode, part_seconds: float) -> list[str]:
    """Split a passage with cues into parts of about so many seconds, between cues.

    Return no parts where there would be a single one, or where ``part_seconds`` is 0.
    """
    cues = node.span.cues
    if part_seconds <= 0 or len(cues) < 2:
        return []
    begin = cues[0].time_start
    duration = max(cue.time_end for cue in cues) - begin
    count = min(round(duration / part_seconds), len(cues))
    if count < 2:
        return []
    ends: dict[int, int] = {}
    for cue in cues:
        middle = (cue.time_start + cue.time_end) / 2 - begin
        part = max(max(ends, default=0), min(count - 1, int(middle * count / duration)))
        ends[part] = cue.end
    if len(ends) < 2:
        return []
    starts = [cues[0].start, *list(ends.values())[:-1]]
    return [node.text[start:end].strip() for start, end in zip(starts, ends.values(), strict=True)]


_SUFFIX = re.compile(r"\.\w{1,8}$")
_WORD = re.compile(r"[^\W\d_]{3,}")


def format_place(node: ChunkNode) -> str:
    """Return ``path > Title > Heading`` and a line break, without what the text shows already.

    A path of less than two words, such as a number, says nothing and is left out; so is a suffix.
    """
    parsed = node.source.parsed
    headings = (*node.span.heading_path, *node.span.sections)
    return _format_names(parsed.path, (parsed.title, *headings), node.text)


def format_labels(node: ChunkNode) -> str:
    """Return ``[doc: Title] [type: pdf] [section: Heading > Heading]`` and a line break.

    A document without a title goes by the name of its file; what is not known is left out.
    """
    parsed = node.source.parsed
    name = parsed.title or PurePosixPath(parsed.path).name
    return _join_labels(name, parsed.file_type, node.span.heading_path)


def format_labels_of(node: TextNode) -> str:
    """Return the same of a plain node, as far as its metadata says."""
    said = node.metadata
    path = PurePosixPath(_path_of(node))
    headings = [heading.strip() for heading in _headings_of(node)]
    name = str(said.get("title") or path.name)
    return _join_labels(name, str(said.get("file_type") or path.suffix[1:]), headings)


def _join_labels(name: str, file_type: str, headings: Iterable[str]) -> str:
    labels = {"doc": name, "type": file_type, "section": " > ".join(filter(None, headings))}
    said = [f"[{label}: {' '.join(value.split())}]" for label, value in labels.items() if value]
    return " ".join(said) + "\n" if said else ""


def format_place_of(node: TextNode) -> str:
    """Return the same of a plain node, as far as its metadata says where it stands."""
    names = (node.metadata.get("title") or "", *_headings_of(node))
    return _format_names(_path_of(node), [str(name).strip() for name in names], node.text)


def _path_of(node: TextNode) -> str:
    paths = (node.metadata.get(key) for key in ("path", "file_name", "file_path"))
    return next((str(path) for path in paths if path), "")


def _headings_of(node: TextNode) -> list[str]:
    said = node.metadata
    headings = said.get("heading_path") or str(said.get("header_path") or "").split("/")
    return [headings] if isinstance(headings, str) else [str(heading) for heading in headings]


def _format_names(path: str, titles: Iterable[str], text: str) -> str:
    path = _SUFFIX.sub("", path)
    is_telling = len(_WORD.findall(path)) > 1
    names = dict.fromkeys((path if is_telling else "", *titles))
    unseen = [name for name in names if name and name not in text]
    return " > ".join(unseen) + "\n" if unseen else ""
