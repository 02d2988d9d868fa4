"""Lists the files of a folder that may be indexed, and says which were left out and why."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.core.errors import InputError, ReadError, SourceError
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadLimits, file_type
from catalog.ingest.readers.opening import file_kind, open_regular
from catalog.ingest.readers.registry import DOCUMENT_EXTENSIONS

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".catalogignore")
IGNORED_FOLDERS = frozenset(["node_modules", "__pycache__"])
CONVERTED_FOLDER = ".converted"
STREAMED = frozenset(["jsonl", "ndjson"])
MAX_STREAMED_BYTES = 2_000_000_000
LATEST_NS = 2**63 - 1
_MAX_IGNORE_FILE = 1_000_000


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    ``path`` is relative to the root, with ``/``, in Unicode NFC: the document's name on every
    system. ``absolute`` opens the file, whatever form its name has on disk; symlinks in it are
    resolved. ``size`` is in bytes. ``mtime_ns`` is a signed 64-bit number: a file dated after the
    year 2262 has the highest.
    """

    path: str
    absolute: Path
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file or folder that was not listed, and why; ``path`` can always be printed."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What a folder holds, both parts sorted by path; ``top`` is the folder, or file, resolved."""

    top: Path
    files: tuple[SourceFile, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()


def discover(
    root: Path,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    limits: ReadLimits = DEFAULT_LIMITS,
) -> Listing:
    """The files under ``root``, or ``root`` itself if it is a file.

    ``include`` and ``exclude`` are patterns as in ``.gitignore``, relative to the root; an empty
    ``include`` means everything. Hidden files and folders, ``node_modules``, ``__pycache__``
    and what ``.gitignore`` or ``.catalogignore`` files (nested ones too) name are left out
    silently; all else that is not listed is ``skipped`` with a reason. No symlink is followed
    out of the root and none to a folder at all. ``limits`` bounds the size of files; JSON Lines
    are streamed, so they may have 2 GB. A file named by ``root`` is listed whatever its name,
    and ``.converted`` is no hidden folder: converters put their Markdown there.

    Raises ``SourceError`` if ``root`` does not exist, cannot be listed, or is neither file nor
    folder, and ``InputError`` for a pattern that has no meaning.
    """
    top, mode = _resolve(root)
    walk = _Walk(top, _patterns(include), _patterns(exclude), limits)
    if stat.S_ISDIR(mode):
        walk.folder()
    elif stat.S_ISREG(mode):
        walk.single()
    else:
        raise SourceError(f"{_printable(str(root))} is a {file_kind(mode)}: name a file or folder")
    return walk.listing()


@dataclass(frozen=True, slots=True)
class _Rules:
    """The ignore rules of one folder; ``base`` is its path with a slash at the end, or empty."""

    base: str
    spec: GitIgnoreSpec

    def verdict(self, path: str) -> bool | None:
        """Whether ``path`` is ignored; ``None`` if no rule speaks of it."""
        return self.spec.check_file(path[len(self.base) :]).include


@dataclass(slots=True)
class _Walk:
    root: Path
    include: GitIgnoreSpec | None
    exclude: GitIgnoreSpec | None
    limits: ReadLimits
    found: list[tuple[str, Path, os.stat_result]] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)

    def single(self) -> None:
        if self._is_named_well(self.root.name, "file"):
            self._add(self.root.name, self.root, self.root.stat())

    def folder(self) -> None:
        """Depth first without recursion: a folder may be nested deeper than Python's stack."""
        waiting: list[tuple[str, tuple[_Rules, ...]]] = [("", ())]
        while waiting:
            base, rules = waiting.pop()
            entries = self._entries(base)
            own = _rules_of(base, entries)
            rules = (own, *rules) if own is not None else rules
            waiting.extend((below, rules) for below in self._visit(base, entries, rules))

    def listing(self) -> Listing:
        """Where two names differ in Unicode form only, the one in NFC gets the NFC path."""
        files: dict[str, SourceFile] = {}
        nfc_first = sorted(self.found, key=lambda one: (_nfc(one[0]) != one[0], one[0]))
        for path, absolute, info in nfc_first:
            name = path if _nfc(path) in files else _nfc(path)
            files[name] = SourceFile(name, absolute, info.st_size, min(info.st_mtime_ns, LATEST_NS))
        ordered = sorted(files.values(), key=lambda file: file.path)
        return Listing(
            self.root,
            tuple(ordered),
            tuple(sorted(self.skipped, key=lambda one: (one.path, one.reason))),
        )

    def _entries(self, base: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / base) as entries:
                return list(entries)
        except OSError as error:
            if not base:
                raise SourceError(
                    f"{_printable(str(self.root))} cannot be listed: {error.strerror}"
                ) from error
            self._skip(base.rstrip("/"), f"folder cannot be listed: {error.strerror}")
            return []

    def _visit(
        self, base: str, entries: list[os.DirEntry[str]], rules: tuple[_Rules, ...]
    ) -> Iterator[str]:
        """Lists the files of one folder; answers the folders to go down into."""
        for entry in entries:
            path = base + entry.name
            is_hidden = entry.name.startswith(".") and entry.name != CONVERTED_FOLDER
            if is_hidden or entry.name in IGNORED_FOLDERS:
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError as error:
                self._skip(path, f"cannot be looked at: {error.strerror}")
                continue
            is_folder = stat.S_ISDIR(info.st_mode)
            if not self._is_named_well(path, "folder" if is_folder else "file"):
                continue
            if self._is_left_out(path + "/" if is_folder else path, rules):
                continue
            if is_folder:
                yield path + "/"
            elif self.include is None or self.include.match_file(_nfc(path)):
                self._file(path, entry, info)

    def _file(self, path: str, entry: os.DirEntry[str], info: os.stat_result) -> None:
        if stat.S_ISLNK(info.st_mode):
            self._link(path, entry)
        else:
            self._add(path, self.root / path, info)

    def _link(self, path: str, entry: os.DirEntry[str]) -> None:
        try:
            target = Path(entry.path).resolve(strict=True)
            info = target.lstat()
        except (OSError, RuntimeError):
            self._skip(path, "symlink to nothing, or in a circle")
            return
        if not target.is_relative_to(self.root):
            self._skip(path, "symlink out of the folder: not followed")
        elif stat.S_ISDIR(info.st_mode):
            self._skip(path, "symlink to a folder: not followed")
        else:
            self._add(path, target, info)

    def _add(self, path: str, absolute: Path, info: os.stat_result) -> None:
        limit = self._limit(path)
        if not stat.S_ISREG(info.st_mode):
            self._skip(path, f"not a regular file ({file_kind(info.st_mode)})")
        elif info.st_size > limit:
            self._skip(path, f"too large: {info.st_size:,} bytes, at most {limit:,} are read")
        else:
            self.found.append((path, absolute, info))

    def _limit(self, path: str) -> int:
        extension = file_type(path)
        if extension in STREAMED:
            return max(self.limits.text_bytes, MAX_STREAMED_BYTES)
        return (
            self.limits.document_bytes
            if extension in DOCUMENT_EXTENSIONS
            else self.limits.text_bytes
        )

    def _is_left_out(self, path: str, rules: tuple[_Rules, ...]) -> bool:
        """The rules nearest to the file decide, as in git."""
        if self.exclude is not None and self.exclude.match_file(_nfc(path)):
            return True
        verdicts = (one.verdict(path) for one in rules)
        return next((verdict for verdict in verdicts if verdict is not None), False)

    def _is_named_well(self, path: str, kind: str) -> bool:
        if _printable(path) == path:
            return True
        self._skip(path, f"{kind} name is not valid UTF-8")
        return False

    def _skip(self, path: str, reason: str) -> None:
        self.skipped.append(SkippedFile(_printable(path), reason))


def _resolve(root: Path) -> tuple[Path, int]:
    try:
        top = Path(root).resolve(strict=True)
        return top, top.stat().st_mode
    except FileNotFoundError as error:
        raise SourceError(f"{_printable(str(root))} does not exist") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise SourceError(f"{_printable(str(root))} cannot be used: {error}") from error


def _patterns(patterns: Sequence[str]) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec

    if not patterns:
        return None
    try:
        return GitIgnoreSpec.from_lines([_nfc(pattern) for pattern in patterns])
    except ValueError as error:
        raise InputError(f"pattern without a meaning: {error}") from error


def _rules_of(base: str, entries: Sequence[os.DirEntry[str]]) -> _Rules | None:
    from pathspec import GitIgnoreSpec

    by_name = {entry.name: entry for entry in entries if entry.name in IGNORE_FILES}
    lines = [
        line for name in IGNORE_FILES if name in by_name for line in _rule_lines(by_name[name])
    ]
    return _Rules(base, GitIgnoreSpec.from_lines(lines)) if lines else None


def _rule_lines(entry: os.DirEntry[str]) -> Iterator[str]:
    """The usable lines of an ignore file; like git, one without a meaning is passed over."""
    from pathspec import GitIgnoreSpec

    try:
        with open_regular(Path(entry.path)) as handle:
            text = handle.read(_MAX_IGNORE_FILE).decode("utf-8-sig", "surrogateescape")
    except ReadError:
        return
    for line in text.splitlines():
        # Inside a walk both mean the same, but the first would also match the folder itself.
        rule = line[:-1] if line.endswith("/**") and not line.startswith("!") else line
        try:
            GitIgnoreSpec.from_lines([rule])
        except ValueError:
            continue
        yield rule


def _nfc(path: str) -> str:
    return unicodedata.normalize("NFC", path)


def _printable(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
