"""Front matter: YAML between ``---`` lines or TOML between ``+++`` lines at the start of a file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import yaml

MAX_CHARACTERS = 64 * 1024
MAX_DEPTH = 16

_OPENING = re.compile(r"(---|\+\+\+)[ \t]*(?>\r\n?|\n)")
_CLOSING = {
    "---": re.compile(r"(?<=[\r\n])(?:---|\.\.\.)[ \t]*(?=[\r\n]|\Z)"),
    "+++": re.compile(r"(?<=[\r\n])\+\+\+[ \t]*(?=[\r\n]|\Z)"),
}
_LOOKS_LIKE_FIELDS = re.compile(r"(?:[ \t]*#[^\r\n]*(?>\r\n?|\n))*[\"']?[\w.@$-][^:=\r\n]*[:=]")
_PROSE = re.compile(r"(?:\A|(?<=[\r\n]))\w[^:\r\n]*+(?=[\r\n]|\Z)")
"""A line without any field: where YAML is broken it tells text between two rules."""
_LINE_BREAK = re.compile(r"\r\n?|\n")
# Explicit tags make PyYAML's constructors raise nearly anything ("!!bool x" is a KeyError).
_BROKEN_VALUES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The fields, and where the body begins (0 if there is no front matter)."""

    body_start: int = 0
    fields: Mapping[Any, object] = field(default_factory=dict)


def front_matter(text: str) -> FrontMatter:
    """Reads it if it is there.

    A block that is broken, deeply nested, or uses YAML anchors or aliases has no fields, but
    the body still begins after it. What is not closed, longer than 65,536 characters or not a
    list of fields (a rule across the page, say) is text like any other. So is a block that is
    broken by prose, and one with nothing after it: else the document would have no text at all.
    """
    opening = _OPENING.match(text)
    if opening is None:
        return FrontMatter()
    closing = _CLOSING[opening.group(1)].search(text, opening.end())
    if closing is None or closing.start() - opening.end() > MAX_CHARACTERS:
        return FrontMatter()
    block = text[opening.end() : closing.start()]
    fields = _fields(block, opening.group(1))
    line_break = _LINE_BREAK.match(text, closing.end())
    body_start = closing.end() if line_break is None else line_break.end()
    if fields is None:
        return FrontMatter()
    return FrontMatter(body_start if text[body_start:].strip() else 0, fields)


def _fields(block: str, mark: str) -> Mapping[Any, object] | None:
    """The fields, none if they are broken; ``None`` if the block is no list of fields."""
    if not block.strip():
        return {}
    if mark == "+++":
        return _toml(block)
    if _LOOKS_LIKE_FIELDS.match(block) is None:
        return None
    found = _yaml(block)
    return found if isinstance(found, Mapping) else None


def _toml(block: str) -> Mapping[Any, object]:
    try:
        # The TOML standard knows no lone carriage return.
        return dict(tomllib.loads(_LINE_BREAK.sub("\n", block)))
    except (ValueError, RecursionError):
        return {}


def _yaml(block: str) -> object:
    import yaml

    try:
        if not _is_bounded(block):
            return {}
        return yaml.load(block, Loader=_loader())  # noqa: S506  a subclass of the safe loader
    except (yaml.YAMLError, RecursionError, *_BROKEN_VALUES):
        return None if _PROSE.search(block) else {}


def _is_bounded(block: str) -> bool:
    """Looks at the events only, which cost the length of the block whatever it would expand to."""
    import yaml

    depth = 0
    for event in yaml.parse(block, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            return False
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            return False
    return True


@cache
def _loader() -> type[yaml.SafeLoader]:
    """The safe loader, but an impossible date is the string that the author wrote."""
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader = cast("type[yaml.SafeLoader]", type("FrontMatterLoader", (base,), {}))

    def timestamp(constructor: yaml.SafeLoader, node: yaml.ScalarNode) -> object:
        try:
            return constructor.construct_yaml_timestamp(node)
        except (ValueError, AttributeError):
            return node.value

    loader.add_constructor("tag:yaml.org,2002:timestamp", timestamp)
    return loader
