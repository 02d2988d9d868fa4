"""Remove from an answer what would load, run or open something that no cited source contains."""

import re
from collections.abc import Iterable, Set
from functools import lru_cache
from typing import Protocol

_LABEL = r"\[((?:[^\[\]\\]|\\[^\[\n])*+)\]"  # no "[" inside: a search of many is linear
_TARGET = r"\(\s*+<?([^()\s]*+(?:\([^()\s]*+\)[^()\s]*+)*+)[^()]*+\)"
_IMAGE = re.compile(rf"!\[((?:[^\[\]\\]|\\.)*+)\](?:{_TARGET}|\[[^\[\]]*+\])")
_LINK = re.compile(rf"(?<!!){_LABEL}{_TARGET}")
_REFERENCE = re.compile(rf"(?<!!){_LABEL}\[[\d\s,]*+[^\[\]\d\s,][^\[\]]*+\]")  # not [1][2]
_CITATION = re.compile(r"\[((?:chunk|source):[^\[\]]*+)\](?!\()", re.I)  # only an answer's own are
_COLON = r"(?::|&colon;|&#0*+(?:58|x3a);?)"
_SLASH = r"(?:\\2f ?|[/\\]|&b?sol;|&#0*+(?:47|92|x2f|x5c);?)"  # as browsers read it
_ADDRESS = re.compile(
    rf"(?:[a-z][a-z0-9+.-]{{1,20}}{_COLON}{_SLASH}{{2}}|//|\bwww\.|"
    rf"\b(?:https?|ftp|mailto|tel|sms|xmpp){_COLON})[^\s<>\"'`]+",
    re.I,
)
_SCHEME = re.compile(rf"\b(?:javascript|vbscript|data|file|blob){_COLON}[^\s<>]+", re.I)
_DEFINITION = re.compile(r"(\]:\s*+<?)([^\s<>]++)")
_OPENS = re.compile(r"\A(?:/|[a-z][a-z0-9+.-]*+:.)|\\|&#?\w+;", re.I)
_TAG = re.compile(r"(?<!<)<++(/?[a-z][^\s/<>]*+|[/!?])[^<>]*+>?", re.I)
_MARK = re.compile(rf"!\[|\]:\s*+\Z|\](?:{_TARGET}|\()")
_MAY_ACT = re.compile(r"[<\\:]|//|!\[|\][(\[]|&#?\w|www\.", re.I)
_ACTIVE = frozenset(  # what acts, or swallows what follows, even without an attribute
    {"form", "frameset", "iframe", "input", "math", "noembed", "noframes", "noscript", "plaintext"}
    | {"script", "select", "style", "svg", "template", "textarea", "title", "xmp"}
)
_END = ".,;:!?)]}*_"
GONE = "[address removed]"
_KEPT = 32  # passages whose addresses are remembered: each sentence of an answer asks for them


class Addressed(Protocol):
    """The fields of a passage from which a sentence that cites it may take addresses."""

    @property
    def text(self) -> str: ...
    @property
    def link(self) -> str | None: ...


def neutralise(text: str, cited: Iterable[Addressed]) -> str:
    """Return the text without images, active HTML, and addresses that no cited source contains.

    An image is replaced by its words. So is a link, unless its whole address is in a cited passage
    or is its source's. A bare address of another kind is replaced. A tag stays if a cited passage
    has a tag with its name and it cannot act. So nothing that a reader opens, or that a page loads
    by itself, can carry text elsewhere. Where a removal would join words, a space is inserted.
    A mark that looks like a named citation gets round brackets.
    """
    if _MAY_ACT.search(text) is None:
        return text
    cited = list(cited)
    known: frozenset[str] = frozenset().union(
        *(_addresses_of(result.text, result.link) for result in cited)
    )
    names: frozenset[str] = frozenset().union(*(_tags_of(result.text) for result in cited))

    def keep(match: re.Match[str]) -> str:
        return match.group() if match[2].removesuffix(">") in known else match[1]

    def part(match: re.Match[str]) -> str:
        is_known = (match[1] or "").removesuffix(">") in known
        return match.group() if is_known else f"{match.group()[0]} {match.group()[1:]}"

    def define(match: re.Match[str]) -> str:
        is_known = match[2].rstrip(_END) in known or not _OPENS.search(match[2])
        return match.group() if is_known else f"{match[1]}{GONE}"

    text = _TAG.sub(lambda match: _without_tag(match, names), text)
    text = _IMAGE.sub(r"\1", text)
    text = _LINK.sub(keep, text)
    text = _REFERENCE.sub(r"\1", text)
    text = _SCHEME.sub(GONE, _CITATION.sub(r"(\1)", text))
    text = _ADDRESS.sub(lambda match: _bare(match.group(), known), text)
    text = _DEFINITION.sub(define, text)
    text = _MARK.sub(part, text)
    return _TAG.sub(lambda match: _as_text(match, names, known), text)


def _without_tag(match: re.Match[str], names: Set[str]) -> str:
    """Return "" for a whole tag that may act; a lone ``<`` stays for :func:`_as_text`."""
    tag = match.group()
    is_whole = tag.endswith(">") or match[1].startswith("/")
    if not is_whole or _is_inert(match, names) or _ADDRESS.fullmatch(tag.strip("<>")):
        return tag
    return ""


def _as_text(match: re.Match[str], names: Set[str], known: Set[str]) -> str:
    tag = match.group()
    is_known = tag.endswith(">") and "=" not in tag and tag.strip("<>") in known
    if is_known or _is_inert(match, names):
        return tag
    bare = tag.lstrip("<")
    return f"{tag[: -len(bare)]} {bare}"


def _is_inert(match: re.Match[str], names: Set[str]) -> bool:
    """Return whether a tag has a cited name and no attribute that could act.

    A tag that another ``<`` interrupts continues to the next ``>``, so that must be in this
    sentence.
    """
    tag, name, text = match.group(), match[1].casefold(), match.string
    if name not in names or name in "/!?" or name.lstrip("/") in _ACTIVE:
        return False
    if ":" in name and "/" in tag.lstrip("<"):
        return False  # an address of a scheme of its own
    if tag.endswith(">"):
        return "=" not in tag
    return "=" not in text and text.rfind(">") > match.end()


def _bare(address: str, known: frozenset[str]) -> str:
    whole = address.rstrip(_END)
    return address if whole in known else f"{GONE}{address[len(whole) :]}"


@lru_cache(maxsize=_KEPT)
def _tags_of(text: str) -> frozenset[str]:
    return frozenset(match[1].casefold() for match in _TAG.finditer(text))


@lru_cache(maxsize=_KEPT)
def _addresses_of(text: str, link: str | None) -> frozenset[str]:
    found = {match.group().rstrip(_END) for match in _ADDRESS.finditer(text)}
    found |= {match[2].rstrip(_END) for match in _DEFINITION.finditer(text)}
    return frozenset(found | {link.rstrip(_END)} if link else found)
