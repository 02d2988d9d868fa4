"""The state of the search page, which its address holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import ImmutableMultiDict

View = dict[str, Any]
"""What a template shows, by the names it uses."""
Pairs = Sequence[tuple[str, str]]
Form = ImmutableMultiDict[str, str]
_MOST = 50  # pairs of an address
_KEPT = (
    *("q", "dataset", "type", "tag", "year", "after", "before", "mode", "sort", "n"),
    *("doc", "first", "last", "sheet", "at", "page", "why"),
)


class State:
    """The state in an address: the question, its filters, the open document and its lines."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = [(name, value.strip()) for name, value in pairs if name in _KEPT]
        self.pairs = list(dict.fromkeys(pair for pair in self.pairs if pair[1]))[:_MOST]

    def one(self, name: str) -> str:
        """Return the last value of a name, ``""`` if it has none."""
        return next((value for key, value in reversed(self.pairs) if key == name), "")

    def all(self, name: str) -> list[str]:
        """Return all values of a name."""
        return [value for key, value in self.pairs if key == name]

    def number(self, name: str, default: int) -> int:
        """Return the number of a name, the default for anything else."""
        text = self.one(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default

    def without(self, *names: str) -> list[tuple[str, str]]:
        """Return the pairs with other names."""
        return [pair for pair in self.pairs if pair[0] not in names]

    def address(self, *without: str, **changes: str | int | None) -> str:
        """Return the address of this state with changes; ``None`` removes a name."""
        pairs: list[tuple[str, str | int]] = [*self.without(*without, *changes)]
        pairs += [(name, value) for name, value in changes.items() if value not in (None, "")]
        return f"/?{urlencode(pairs)}" if pairs else "/"

    def narrowed(self) -> dict[str, Any]:
        """Return the filters of the state as arguments of a verb, except for tags."""
        year = self.one("year")
        bounds = {"after": self.one("after"), "before": self.one("before")}
        if year.isascii() and year.isdigit() and len(year) < 5:
            bounds = {"after": year, "before": f"{int(year) + 1:04}"}
        given = {"dataset": self.all("dataset"), "file_type": self.one("type"), **bounds}
        return {name: value for name, value in given.items() if value}
