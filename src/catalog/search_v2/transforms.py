"""What v2 does to a passage before it is embedded, and only then."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode, TransformComponent
from pydantic import Field, PrivateAttr

from catalog.embedding.resilient import ResilientEmbedding
from catalog.ingest.nodes import ChunkNode

_SUFFIX = re.compile(r"\.\w{1,8}$")
_WORD = re.compile(r"[^\W\d_]{3,}")


class EmbeddingPrefixTransform(TransformComponent):
    """Formats what is embedded: the document prefix, the passage's place, the passage.

    The formatted windows ride on the node beside its text, never in it: no prefix reaches the
    stored text, the lexical index, a snippet or a prompt. With ``context`` the path, the title
    and the headings that the passage does not itself show stand before it on one line.

    A minute of speech holds several thoughts, and one vector blurs them: besides the whole,
    parts of it of about ``part_seconds`` are embedded, too, and its score is the best one's.
    """

    context: bool = True
    part_seconds: float = Field(20.0, ge=0.0)
    _model: ResilientEmbedding = PrivateAttr()

    def __init__(
        self, model: ResilientEmbedding, *, context: bool = True, part_seconds: float = 20.0
    ) -> None:
        super().__init__(context=context, part_seconds=part_seconds)
        self._model = model

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Set ``windows`` on every :class:`ChunkNode`; other nodes pass untouched."""
        for node in nodes:
            if isinstance(node, ChunkNode):
                lead = place_of(node) if self.context else ""
                texts = [node.text, *parts_of(node, self.part_seconds)]
                node.windows = tuple(
                    window for text in texts for window in self._model.windows(text, lead)
                )
        return list(nodes)


def parts_of(node: ChunkNode, part_seconds: float) -> list[str]:
    """A passage with cues in consecutive parts of about so many seconds, cut between cues.

    None where that would be a single part, or where ``part_seconds`` is 0.
    """
    cues = node.span.cues
    if part_seconds <= 0 or len(cues) < 2:
        return []
    begin = cues[0].time_start
    whole = max(cue.time_end for cue in cues) - begin
    count = min(round(whole / part_seconds), len(cues))
    if count < 2:
        return []
    ends: dict[int, int] = {}
    for cue in cues:
        middle = (cue.time_start + cue.time_end) / 2 - begin
        part = max(max(ends, default=0), min(count - 1, int(middle * count / whole)))
        ends[part] = cue.end
    if len(ends) < 2:
        return []
    starts = [cues[0].start, *list(ends.values())[:-1]]
    return [node.text[start:end].strip() for start, end in zip(starts, ends.values(), strict=True)]


def place_of(node: ChunkNode) -> str:
    """``path > Title > Heading`` and a line break, leaving out what the text shows already.

    A path of less than two words, such as a number, says nothing and is left out; so is a suffix.
    """
    parsed = node.source.parsed
    path = _SUFFIX.sub("", parsed.path)
    told = path if len(_WORD.findall(path)) > 1 else ""
    names = dict.fromkeys((told, parsed.title, *node.span.heading_path))
    unseen = [name for name in names if name and name not in node.text]
    return " > ".join(unseen) + "\n" if unseen else ""
