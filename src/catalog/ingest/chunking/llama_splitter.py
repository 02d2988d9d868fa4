"""Passages cut by a LlamaIndex splitter, found again in the text that they were cut from.

The offsets that LlamaIndex reports are searched for after the cut: in text that repeats itself
they point too early, and of chained splitters they count from an inner node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from llama_index.core.schema import Document, MetadataMode

from catalog.core.documents import ParsedDocument
from catalog.core.errors import InputError

if TYPE_CHECKING:
    from llama_index.core.node_parser import NodeParser

_SPACE = re.compile(r"\s*")


def split_text(splitter: NodeParser, doc: ParsedDocument) -> list[tuple[int, int]]:
    """Return where the splitter's passages stand in ``doc.text``: ``[start, end)``, in order.

    Raises :class:`InputError` for a splitter that rewrites what it cuts, or cuts the same text
    twice: its passages could not be cited.
    """
    body = doc.text[doc.body_start :]
    nodes = splitter([Document(text=body, id_=doc.path)])
    texts = [node.get_content(metadata_mode=MetadataMode.NONE).strip() for node in nodes]
    ranges: list[tuple[int, int]] = []
    for text in filter(None, texts):
        start = _find(doc, text, *ranges[-1]) if ranges else doc.text.find(text, doc.body_start)
        if start < 0:
            name = type(splitter).__name__
            raise InputError(
                f"{name} gives passages of {doc.path} that do not follow each other in its text: "
                "take a splitter that only cuts"
            )
        ranges.append((start, start + len(text)))
    return ranges


def _find(doc: ParsedDocument, text: str, before: int, end: int) -> int:
    """Return where a passage begins after the one ``[before, end)``; -1 if nowhere.

    Right behind it, else where the two share as little as possible, else anywhere behind it.
    """
    space = _SPACE.match(doc.text, end)
    behind = end if space is None else space.end()
    if doc.text.startswith(text, behind):
        return behind
    shared = doc.text.rfind(text, before + 1, end + len(text) - 1)
    return shared if shared >= 0 else doc.text.find(text, behind)
