"""What is embedded besides a passage as a whole: where it stands, and parts of speech."""

from __future__ import annotations

import re
from collections.abc import Iterable

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


def format_place_of(node: TextNode) -> str:
    """Return the same of a plain node, as far as its metadata says where it stands."""
    said = node.metadata
    paths = (said.get(key) for key in ("path", "file_name", "file_path"))
    headings = said.get("heading_path") or str(said.get("header_path") or "").split("/")
    names = (said.get("title") or "", *([headings] if isinstance(headings, str) else headings))
    path = next((str(path) for path in paths if path), "")
    return _format_names(path, [str(name).strip() for name in names], node.text)


def _format_names(path: str, titles: Iterable[str], text: str) -> str:
    path = _SUFFIX.sub("", path)
    is_telling = len(_WORD.findall(path)) > 1
    names = dict.fromkeys((path if is_telling else "", *titles))
    unseen = [name for name in names if name and name not in text]
    return " > ".join(unseen) + "\n" if unseen else ""
