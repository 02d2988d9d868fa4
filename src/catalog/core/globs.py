"""Match paths by a pattern as in ``.gitignore``, in bounded time whatever the pattern.

Patterns come from remote callers, and pathspec's regular expressions may take exponential time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate

_MAX_CHARS = 4_096  # characters, of a path on Linux
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Glob:
    """A compiled pattern, for paths of files relative to one folder, with ``/`` between names.

    It means the same as a single line in that folder's ``.gitignore``; a comment, a ``!`` line and
    a line longer than any path match nothing.
    """

    _names: tuple[Callable[[str], object] | None, ...]
    """What fits each name of a path; ``None`` is any number of folders."""
    _of_folder: bool

    @classmethod
    def compile(cls, pattern: str) -> Glob:
        """Compile a pattern; any text is one."""
        line = pattern if pattern.endswith("\\ ") else pattern.rstrip()
        if len(line) > _MAX_CHARS or line.startswith(("#", "!")):
            line = ""
        names = line.removesuffix("/").removeprefix("/").split("/")
        if "/" not in line.removesuffix("/"):
            names.insert(0, "**")
        if names[-1] == "**":
            names.append("*")
        return cls(
            tuple(None if name == "**" else _matcher(name) for name in names), line.endswith("/")
        )

    def matches(self, path: str) -> bool:
        """Return whether the pattern matches the path, or a folder above it."""
        names = path.split("/")
        return bool(self._ends(names[:-1] if self._of_folder or not names[-1] else names))

    def names(self, path: str) -> bool:
        """Return whether the pattern matches the path itself; a folder's path ends with a slash."""
        if self._of_folder and not path.endswith("/"):
            return False
        names = path.removesuffix("/").split("/")
        return len(names) in self._ends(names)

    def _ends(self, path: Sequence[str]) -> set[int]:
        """Return how many first names of a path the pattern can fit."""
        ends = {0}
        for fits in self._names:
            if fits is None:
                ends = set(range(min(ends), len(path))) if ends else ends
            else:
                ends = {end + 1 for end in ends if end < len(path) and fits(path[end])}
        return ends


def _matcher(name: str) -> Callable[[str], object]:
    """Return what a name fits; ``\\`` takes a sign as it is, which Python's patterns lack."""
    plain = _ESCAPED.sub(lambda sign: f"[{sign[1]}]" if sign[1] in "*?[" else sign[1], name)
    return re.compile(translate(plain.replace("[^", "[!"))).match


@dataclass(frozen=True, slots=True)
class GlobRules:
    """Patterns like the lines of a ``.gitignore``: the last one that matches a path decides.

    A ``!`` line reverts the match of earlier lines.
    """

    _rules: tuple[tuple[bool, Glob], ...]

    @classmethod
    def compile(cls, patterns: Iterable[str]) -> GlobRules:
        """Compile patterns in their order."""
        rules = [(one.startswith("!"), Glob.compile(one.removeprefix("!"))) for one in patterns]
        return cls(tuple(rules[::-1]))

    def verdict(self, path: str) -> bool | None:
        """Return the verdict of the last pattern that matches the path itself, else ``None``."""
        return next((not negated for negated, glob in self._rules if glob.names(path)), None)

    def match(self, path: str) -> bool:
        """Return the verdict on the path; if no pattern matches it, that on a folder above it."""
        if (verdict := self.verdict(path)) is not None:
            return verdict
        return next((not negated for negated, glob in self._rules if glob.matches(path)), False)


def folders_above(path: str) -> Iterator[str]:
    """Yield the folders above a file, nearest first; the last is the root, ``.``."""
    while path := path.rpartition("/")[0]:
        yield path
    yield "."
