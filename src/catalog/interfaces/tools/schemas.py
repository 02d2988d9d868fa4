"""JSON schemas that are quick to hold an answer against: a client does so with every one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TOLD_OF_A_TYPE = frozenset(["type", "title", "description"])


def quick_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema without references, titles, and alternatives of bare types.

    ``anyOf`` of a type or null becomes ``"type": ["string", "null"]``: one look instead of two
    branches. Definitions are put where they are referred to, so none may hold itself.
    """
    found = _plain(schema, schema.get("$defs", {}))
    assert isinstance(found, dict)
    return found


def _plain(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_plain(one, definitions) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        named = definitions[node["$ref"].rpartition("/")[2]]
        return _plain({**named, **{k: v for k, v in node.items() if k != "$ref"}}, definitions)
    kept = {name: value for name, value in node.items() if name != "$defs"}
    if isinstance(kept.get("title"), str):
        del kept["title"]
    for name in ("properties", "patternProperties"):
        if name in kept:
            inner = kept[name].items()
            kept[name] = {key: _plain(value, definitions) for key, value in inner}
    kept |= {
        name: _plain(value, definitions)
        for name, value in kept.items()
        if name in ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties")
    }
    return _one_type(kept)


def _one_type(node: dict[str, Any]) -> dict[str, Any]:
    """Alternatives of types as a list of types, with what else binds the one that is not null."""
    branches = node.get("anyOf")
    if not branches or any(not isinstance(one.get("type"), str) for one in branches):
        return node
    bound = [one for one in branches if not _TOLD_OF_A_TYPE.issuperset(one)]
    if len(bound) > 1 or (bound and len(branches) != 2) or "type" in node:
        return node
    if bound and not any(one["type"] == "null" for one in branches):
        return node
    others = {name: value for name, value in node.items() if name != "anyOf"}
    rules = {name: value for one in bound for name, value in one.items() if name != "type"}
    if "enum" in rules or "const" in rules:
        return node
    return {**rules, **others, "type": [one["type"] for one in branches]}
