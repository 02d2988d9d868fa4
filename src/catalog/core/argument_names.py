"""Names of arguments: other usual ones are taken, and a wrong one is answered with the nearest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from catalog.core.errors import InputError

_MAX_COMPARED = 60  # characters of a name
_ALIKE = 0.7  # share of the letters, as difflib counts
Names = Mapping[str, Iterable[str]]
"""The aliases of each argument, by its name."""


def rename_arguments(
    arguments: Mapping[str, Any], names: Names
) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments under their own names, and a note on those that had another one.

    Case, hyphens and underscores of a name do not matter (``topK``, ``top-k``). A name that is none
    stays as it is. Raises :class:`InputError` for two names of one argument.
    """
    known = {fold_name(alias): name for name, aliases in names.items() for alias in aliases}
    known |= {fold_name(name): name for name in names}
    renamed = {name: value for name, value in arguments.items() if name in names}
    taken = []
    for given, value in arguments.items():
        name = known.get(fold_name(given), given)
        if given in names or (value is None and name != given):
            continue
        if name in renamed and renamed[name] is not None:
            raise InputError(f"{given} and {name} are the same argument: give one of them")
        renamed[name] = value
        if name != given:
            taken.append(f"{given} was taken as {name}")
    return renamed, [", ".join(taken)] if taken else []


def describe_unknown(name: str, names: Names) -> str:
    """Say that there is no argument of that name, which is the nearest, and which there are."""
    nearest = nearest_name(name, names)
    hint = f"; did you mean {nearest}?" if nearest else ";"
    shown = repr(name if len(name) <= _MAX_COMPARED else f"{name[: _MAX_COMPARED - 1]}…")
    return f"there is no argument {shown}{hint} arguments: {', '.join(names) or 'none'}"


def nearest_name(name: str, names: Names) -> str | None:
    """Return the argument whose name, or one of whose aliases, is most like it, if any is."""
    aliases = {fold_name(alias): own for own, others in names.items() for alias in (own, *others)}
    near = get_close_matches(fold_name(name[:_MAX_COMPARED]), list(aliases), n=1, cutoff=_ALIKE)
    return aliases[near[0]] if near else None


def fold_name(name: str) -> str:
    """Return the name without case, hyphens and underscores."""
    return re.sub(r"[\s_-]+", "", name).casefold()
