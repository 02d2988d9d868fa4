"""Where in a TOML text a key stands, for errors that name the line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

_MOST_LINES = 2_000  # each is tried as an ending, which takes the square of their number


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the line, from 1 on, at which the key of these nested names begins.

    Of names that are not all there the deepest table that is counts. ``None`` where none is, and
    in a text that is no TOML or has more than 2,000 lines.
    """
    lines = text.splitlines(keepends=True)
    if len(lines) > _MOST_LINES:
        return None
    found, depth, complete = None, 0, 0
    for count in range(1, len(lines) + 1):
        try:
            tree = tomllib.loads("".join(lines[:count]))
        except (tomllib.TOMLDecodeError, RecursionError):
            continue  # within a value of several lines
        if (now := _depth(tree, path)) > depth:
            found, depth = complete + 1, now
        complete = count
    return found


def _depth(tree: Any, path: Sequence[str]) -> int:
    """Return how many of the nested names are there."""
    for depth, name in enumerate(path):
        if not isinstance(tree, Mapping) or name not in tree:
            return depth
        tree = tree[name]
    return len(path)
