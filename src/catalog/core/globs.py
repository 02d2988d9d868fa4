"""Match paths by a pattern as in ``.gitignore``, in bounded time whatever the pattern.

Patterns come from remote callers. The usual translation to a regular expression takes time
exponential in the number of stars, and meanwhile no other thread of the process runs. Here each
star is settled at the first place where the following part fits (like :func:`fnmatch.translate`
since Python 3.9), so a path takes at most about its length times the pattern's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from catalog.core.errors import InputError

_TOKEN = re.compile(
    r"(?P<star>\*)|(?P<any>\?)|\\(?P<escaped>.)"
    r"|\[(?P<not>[!^]?+)(?P<set>\]?+[^\]]*+)\]|(?P<other>\[.*+|.)",
    re.DOTALL,
)
_MEMBER = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_MAX_CHARS = 4_096  # characters, of a path on Linux
_ANY = "[^/]"
_NOTHING = "(?!)"
_END = "(?![^/])"  # of a name: a slash follows, or nothing
_FOLDERS = "(?:[^/]*+/)*?"  # any number of them, the fewest first


class _UnclosedBracketError(Exception):
    """A pattern with an unclosed bracket, which matches nothing."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A compiled pattern, for paths of files relative to one folder, with ``/`` between names.

    It means the same as a single line in that folder's ``.gitignore``, as pathspec reads it: a
    comment, a ``!`` line and an unclosed ``[`` match nothing; a backslash in brackets is a plain
    character, and ``[:alpha:]`` is not a class. As in git, and unlike pathspec, brackets never
    match a slash, and a line end in a path is an ordinary character.
    """

    _expression: re.Pattern[str]
    _itself: re.Pattern[str]

    @classmethod
    def compile(cls, pattern: str) -> Glob:
        r"""Compile a pattern.

        Raises :class:`InputError` for one without a meaning, such as ``!`` or ``a\``, and for one
        that is longer than any path.
        """
        is_negated, glob = _compile_line(pattern)
        return _NO_GLOB if is_negated else glob

    def matches(self, path: str) -> bool:
        """Return whether the pattern matches the path, or a folder above it."""
        return self._expression.match(path) is not None

    def names(self, path: str) -> bool:
        """Return whether the pattern matches the path itself; a folder's path ends with a slash."""
        return self._itself.match(path) is not None


_NO_GLOB = Glob(re.compile(_NOTHING), re.compile(_NOTHING))


@dataclass(frozen=True, slots=True)
class GlobRules:
    """Patterns like the lines of a ``.gitignore``: the last one that matches a path decides.

    A ``!`` line reverts the match of earlier lines.
    """

    _rules: tuple[tuple[bool, Glob], ...]

    @classmethod
    def compile(cls, patterns: Iterable[str], *, lenient: bool = False) -> GlobRules:
        """Compile patterns in their order.

        Raises like :meth:`Glob.compile`, unless ``lenient``: then, like git, it skips a pattern
        without a meaning.
        """
        rules = []
        for pattern in patterns:
            try:
                rules.append(_compile_line(pattern))
            except InputError:
                if not lenient:
                    raise
        return cls(tuple(rules[::-1]))

    def verdict(self, path: str) -> bool | None:
        """Return the verdict of the last pattern that matches the path itself, else ``None``."""
        return next((not negated for negated, glob in self._rules if glob.names(path)), None)

    def match(self, path: str) -> bool:
        """Return the verdict on the path; if no pattern matches it, that on a folder above it."""
        verdict = self.verdict(path)
        if verdict is None:
            verdict = next(
                (not negated for negated, glob in self._rules if glob.matches(path)), False
            )
        return verdict


def _compile_line(pattern: str) -> tuple[bool, Glob]:
    if len(pattern) > _MAX_CHARS:
        raise InputError(f"{len(pattern):,} characters are too many for a path or pattern")
    line = pattern if pattern.endswith("\\ ") else pattern.rstrip()
    if not line or line == "/" or line.startswith("#"):
        return False, _NO_GLOB
    is_negated = line.startswith("!")
    try:
        expressions = _translate(line.removeprefix("!"))
    except _UnclosedBracketError:
        return is_negated, _NO_GLOB
    except ValueError as error:
        message = f"{pattern!r} is neither a path nor a pattern of paths"
        raise InputError(message) from error
    path, itself = map(re.compile, expressions)
    return is_negated, Glob(path, itself)


def _translate(line: str) -> tuple[str, str]:
    """Return expressions for the paths at or below a line's matches, and for the matches."""
    names = _split_names(line)
    below = _path_expression(names, _END)
    is_folder = line.endswith("/")
    if is_folder:
        names = names[:-1]
    if names[-1] == "**":
        return below, below + (r"(?s:.)*/\Z" if is_folder else "(?s:.)")
    if is_folder:
        return below, _path_expression(names, r"/\Z")
    return below, _path_expression(names, r"/?\Z")


def _split_names(line: str) -> list[str]:
    """Split the line into patterns for names, topmost first; ``**`` is any number of folders."""
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


def _path_expression(names: list[str], end: str) -> str:
    """Build a path's expression: names after ``**`` match in the fewest folders possible.

    No other match needs to be tried: if the names also fit further down, so does everything after
    them, which may be at any depth. ``end`` is the expression that must follow the last name.
    """
    groups: list[list[str]] = [[]]
    for before, name in zip(["", *names], names, strict=False):
        if name != "**":
            groups[-1].append(_name_expression(name))
        elif before != "**":
            groups.append([])
    ends = [_END] * (len(groups) - 1) + [end]
    top, *deeper = (
        "/".join(group) + after if group else "" for group, after in zip(groups, ends, strict=True)
    )
    parts = [f"(?>{_FOLDERS}{group})" if group else "" for group in deeper]
    return "/".join([top, *parts] if top else parts)


def _name_expression(name: str) -> str:
    first, *others = _split_at_stars(name)
    if not others:
        return first or _NOTHING  # between two slashes
    inner = "".join(f"(?>{_ANY}*?{piece})" for piece in others[:-1] if piece)
    return f"{first}{inner}{_ANY}*{others[-1]}"


def _split_at_stars(name: str) -> list[str]:
    """Return the expressions between the stars; each matches texts of one length only."""
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
    if (token["other"] or "").startswith("["):
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


def folders_above(path: str) -> Iterator[str]:
    """Yield the folders above a file, nearest first; the last is the root, ``.``."""
    while path := path.rpartition("/")[0]:
        yield path
    yield "."
