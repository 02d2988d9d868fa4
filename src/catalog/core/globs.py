"""Matching paths by a pattern as in ``.gitignore``, in bounded time whatever the pattern.

Patterns come from remote callers, and the usual translation to a regular expression takes time
exponential in their stars, during which no other thread of the process runs. Here each star is
settled by the first place where what follows it fits (as :func:`fnmatch.translate` does since
Python 3.9), so a path takes at most about its length times the pattern's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from catalog.core.errors import InputError

_TOKEN = re.compile(
    r"(?P<star>\*)|(?P<any>\?)|\\(?P<escaped>.)"
    r"|\[(?P<not>[!^]?+)(?P<set>\]?+[^\]]*+)\]|(?P<other>.)",
    re.DOTALL,
)
_MEMBER = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_MAX_CHARS = 4_096  # characters, of a path on Linux
_ANY = "[^/]"
_NOTHING = "(?!)"
_END = "(?![^/])"  # of a name: a slash follows, or nothing
_FOLDERS = "(?:[^/]*+/)*?"  # any number of them, the fewest first


class _UnclosedBracketError(Exception):
    """Such a pattern matches nothing."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A compiled pattern, for paths of files relative to one folder, ``/`` between the names.

    It means what the line would mean alone in that folder's ``.gitignore``, in pathspec's reading:
    a comment or a ``!`` line matches nothing, neither does an unclosed ``[``; a backslash in
    brackets is a plain character, and ``[:alpha:]`` no class. As in git, and unlike pathspec,
    brackets never match a slash, and a line end in a path is a character like any other.
    """

    _expression: re.Pattern[str]

    @classmethod
    def compile(cls, pattern: str) -> Glob:
        """Compile a pattern.

        Raises :class:`InputError` for one without a meaning, such as ``!`` or ``a\\``, and for one
        longer than any path.
        """
        if len(pattern) > _MAX_CHARS:
            raise InputError(f"a pattern of {len(pattern):,} characters names no path")
        try:
            expression = _translate(pattern)
        except _UnclosedBracketError:
            expression = _NOTHING
        except ValueError as error:
            message = f"{pattern!r} is neither a path nor a pattern of paths"
            raise InputError(message) from error
        return cls(re.compile(expression))

    def matches(self, path: str) -> bool:
        """Return whether the pattern names the path, or a folder it lies in."""
        return self._expression.match(path) is not None


def _translate(pattern: str) -> str:
    line = pattern if pattern.endswith("\\ ") else pattern.rstrip()
    if not line or line == "/" or line.startswith("#"):
        return _NOTHING
    expression = _path_expression(_split_names(line.removeprefix("!")))
    return _NOTHING if line.startswith("!") else expression


def _split_names(line: str) -> list[str]:
    """Split the line into patterns of names from the top down; ``**``: any number of folders."""
    names = line.split("/")
    is_folder = not names[-1]
    if not names[0]:
        del names[0]
    elif len(names) - is_folder == 1:
        names.insert(0, "**")
    if not names:
        raise ValueError("no name")
    if is_folder:
        names[-1] = "**"
    if set(names) == {"**"}:
        return ["**", "*", "**"] if is_folder else ["**", "*"]
    return names


def _path_expression(names: list[str]) -> str:
    """Build a path's expression: names after ``**`` are sought in the fewest folders, for good.

    If they fit further down too, then so does all that follows, which may lie at any depth below.
    """
    groups: list[list[str]] = [[]]
    for before, name in zip(["", *names], names, strict=False):
        if name != "**":
            groups[-1].append(_name_expression(name))
        elif before != "**":
            groups.append([])
    top, *deeper = ("/".join(group) for group in groups)
    parts = [f"(?>{_FOLDERS}{group}{_END})" if group else "" for group in deeper]
    return "/".join([top + _END, *parts] if top else parts)


def _name_expression(name: str) -> str:
    first, *others = _split_at_stars(name)
    if not others:
        return first or _NOTHING  # between two slashes
    inner = "".join(f"(?>{_ANY}*?{piece})" for piece in others[:-1] if piece)
    return f"{first}{inner}{_ANY}*{others[-1]}"


def _split_at_stars(name: str) -> list[str]:
    """Return expressions between the stars, each of which matches one length only."""
    pieces = [""]
    for token in _TOKEN.finditer(name):
        if token["star"]:
            pieces.append("")
        else:
            pieces[-1] += _character_expression(token)
    return pieces


def _character_expression(token: re.Match[str]) -> str:
    if token["any"]:
        return _ANY
    if token["set"] is not None:
        members = "".join(_bracket_members(token["set"]))
        if token["not"]:
            return f"[^/{members}]"
        return f"(?!/)[{members}]" if members else _NOTHING
    if token["other"] == "[":
        raise _UnclosedBracketError
    if token["other"] == "\\":
        raise ValueError("nothing to escape")
    return re.escape(token["escaped"] or token["other"])


def _bracket_members(brackets: str) -> Iterator[str]:
    for low, high, char in _MEMBER.findall(brackets):
        if char:
            yield re.escape(char)
        elif low <= high:
            yield f"{re.escape(low)}-{re.escape(high)}"
