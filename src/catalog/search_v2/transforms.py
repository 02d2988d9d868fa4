"""What v2 does to a passage before it is embedded, and only then."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from llama_index.core.schema import BaseNode, TransformComponent
from pydantic import PrivateAttr

from catalog.embedding.resilient import ResilientEmbedding
from catalog.ingest.nodes import ChunkNode

_SUFFIX = re.compile(r"\.\w{1,8}$")
_WORD = re.compile(r"[^\W\d_]{3,}")


class EmbeddingPrefixTransform(TransformComponent):
    """Formats what is embedded: the document prefix, the passage's place, the passage.

    The formatted windows ride on the node beside its text, never in it: no prefix reaches the
    stored text, the lexical index, a snippet or a prompt. With ``context`` the path, the title
    and the headings that the passage does not itself show stand before it on one line.
    """

    context: bool = True
    _model: ResilientEmbedding = PrivateAttr()

    def __init__(self, model: ResilientEmbedding, *, context: bool = True) -> None:
        super().__init__(context=context)
        self._model = model

    def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
        """Set ``windows`` on every :class:`ChunkNode`; other nodes pass untouched."""
        for node in nodes:
            if isinstance(node, ChunkNode):
                lead = place_of(node) if self.context else ""
                node.windows = tuple(self._model.windows(node.text, lead))
        return list(nodes)


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
