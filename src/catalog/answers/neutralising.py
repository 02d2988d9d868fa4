"""Take out of an answer what would load, run or open something that no cited source holds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

_LABEL = r"\[((?:[^\[\]\\]|\\.)*+)\]"
_TARGET = r"\(\s*+<?([^()\s]*+(?:\([^()\s]*+\)[^()\s]*+)*+)[^()]*+\)"
_IMAGE = re.compile(rf"!{_LABEL}(?:{_TARGET}|\[[^\[\]]*+\])")
_LINK = re.compile(rf"(?<!!){_LABEL}{_TARGET}")
_REFERENCE = re.compile(  # [text][name], not [1][2]
    rf"(?<!!){_LABEL}\[[\d\s,]*+[^\[\]\d\s,][^\[\]]*+\]"
)
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]{1,20}:)?//[^\s<>\"'`]+|\bwww\.[^\s<>\"'`]+", re.I)
_SCHEME = re.compile(r"\b(?:javascript|vbscript|data|file|blob)\s*:[^\s<>]*", re.I)
_TAG = re.compile(
    r"</?\s*(?:a|applet|audio|base|body|embed|form|frame|iframe|image|img|input|link|math|meta|"
    r"object|script|source|style|svg|track|video)\b[^>]*(?:>|$)",
    re.I,
)
_END = ".,;:!?)]}*_"
GONE = "[address removed]"


class Addressed(Protocol):
    """What of a passage, such as a result, says which addresses may stand in what cites it."""

    @property
    def text(self) -> str: ...
    @property
    def link(self) -> str | None: ...


def neutralise(text: str, cited: Iterable[Addressed]) -> str:
    """Return the text without images, active HTML, and addresses that no cited source holds.

    An image becomes its words, a link its words unless its whole address stands in a cited passage
    or is its source's; a bare address of another kind is replaced. So nothing that a reader opens,
    or a page loads by itself, carries words elsewhere.
    """
    if not any(mark in text for mark in ("](", "][", "//", "<", ":", "www.", "WWW.")):
        return text
    known: frozenset[str] = frozenset().union(*(_addresses_of(result) for result in cited))

    def keep(match: re.Match[str]) -> str:
        return match.group() if match[2].removesuffix(">") in known else match[1]

    text = _IMAGE.sub(r"\1", text)
    text = _LINK.sub(keep, text)
    text = _REFERENCE.sub(r"\1", text)
    text = _TAG.sub("", text)
    text = _SCHEME.sub(GONE, text)
    return _ADDRESS.sub(lambda match: _bare(match.group(), known), text)


def _bare(address: str, known: frozenset[str]) -> str:
    whole = address.rstrip(_END)
    return address if whole in known else f"{GONE}{address[len(whole) :]}"


def _addresses_of(result: Addressed) -> frozenset[str]:
    found = {match.group().rstrip(_END) for match in _ADDRESS.finditer(result.text)}
    return frozenset(found | {result.link.rstrip(_END)} if result.link else found)
