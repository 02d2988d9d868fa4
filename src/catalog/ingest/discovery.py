"""List the files of a folder that may be indexed, and the reasons for those left out."""

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from catalog.core.errors import ReadError, SourceError, TransientReadError
from catalog.core.globs import GlobRules, folders_above
from catalog.core.text import nfc
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadLimits, file_type
from catalog.ingest.readers.opening import device_of, file_kind, open_regular
from catalog.ingest.readers.registry import DOCUMENT_EXTENSIONS
from catalog.ingest.sidecars import SIDECAR, find_beside, is_metadata, is_rightly_named

_Rules = tuple[tuple[str, GlobRules], ...]

IGNORE_FILES = (".gitignore", ".catalogignore")
IGNORED_FOLDERS = frozenset(["node_modules", "__pycache__"])
CONVERTED_FOLDER = ".converted"
STREAMED = frozenset(["jsonl", "ndjson", "mbox"])
MAX_STREAMED_BYTES = 2_000_000_000
LATEST_NS = 2**63 - 1
_MISNAMED = (
    "not read, so documents that begin with its name up to the dot have an unreadable level: name "
    "it name.ext.meta.yaml, for the file name.ext, or .catalog.yaml, for its folder"
)
_MAX_IGNORE_FILE = 100_000  # bytes; each listed file is compared with every line


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read; ``path`` is relative to the root, with ``/``, in Unicode NFC.

    ``absolute`` has symlinks resolved. ``mount`` is the nearest folder above it in the root where a
    drive is mounted (``.`` for the root). The numbers have 64 bits.
    """

    path: str
    absolute: Path
    size: int
    mtime_ns: int
    mount: str | None = None
    ctime_ns: int = 0
    inode: int = 0


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file or folder that was not listed, and why; nothing below ``place`` was searched."""

    path: str
    reason: str
    place: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The listed and the skipped files, both sorted by path; ``top`` is the resolved root.

    ``mounts`` are the folders where a drive is mounted, ``left_out`` those that patterns or ignore
    rules exclude. ``beside`` are the sidecars by path, whatever these say; a misnamed one is
    ``None``. ``links`` has the paths to which listed symlinks lead. ``patterns`` are the included
    and the excluded ones by what names them; ``unmatched`` names those that matched nothing.
    """

    top: Path
    files: tuple[SourceFile, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    mounts: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    beside: dict[str, Path | None] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    patterns: dict[str, GlobRules] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()


def discover(
    root: Path,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    limits: ReadLimits = DEFAULT_LIMITS,
) -> Listing:
    """List the files under ``root``, or ``root`` itself if it is a file, whatever its name.

    ``include`` and ``exclude`` are patterns as in ``.gitignore``, relative to the root; an empty
    ``include`` means everything. Hidden names (except ``.converted``), ``node_modules``,
    ``__pycache__`` and what ignore files name are left out silently. Everything else that is not
    listed is ``skipped`` with a reason: links to folders or out of the root, too large files.

    Raises ``SourceError`` if ``root`` is neither file nor folder or cannot be listed, and
    ``InputError`` for an invalid pattern.
    """
    named, included = _printable(str(root)), GlobRules.compile(map(nfc, include))
    excluded = GlobRules.compile(map(nfc, exclude))
    try:
        top = Path(root).resolve(strict=True)
        info = top.stat()
        walk = _Walk(Listing(top), included if include else None, excluded, limits)
        if stat.S_ISREG(info.st_mode):
            walk.list_file(info)
            return walk.listing()
    except FileNotFoundError as error:
        raise SourceError(f"{named} does not exist") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise SourceError(f"{named} cannot be used: {error}") from error
    if not stat.S_ISDIR(info.st_mode):
        raise SourceError(f"{named} is a {file_kind(info.st_mode)}: name a file or folder")
    for option, patterns, rules in (("in", include, included), ("ex", exclude, excluded)):
        each = {f"{option}clude {one!r}": GlobRules.compile([nfc(one)]) for one in patterns}
        walk.unmatched |= each
        walk.found.patterns.update({", ".join(each): rules} if each else {})
    walk.list_folder()
    return walk.listing()


@dataclass(slots=True)
class _Walk:
    """A walk through one folder; a ``base`` in it ends with a slash, or is empty for the root."""

    found: Listing
    include: GlobRules | None
    exclude: GlobRules
    limits: ReadLimits
    files: list[tuple[str, Path, os.stat_result]] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    unmatched: dict[str, GlobRules] = field(default_factory=dict)

    def list_file(self, info: os.stat_result) -> None:
        file = self.found.top
        if self._is_named_well(file.name, "file"):
            self._add(file.name, file, info)
            self.found.beside.update(find_beside(file.parent, file.name))
            for path in (one for one, read in self.found.beside.items() if read is None):
                self._skip(path, _MISNAMED)

    def list_folder(self) -> None:
        """List depth first without recursion: folders may be nested deeper than Python's stack."""
        waiting: list[tuple[str, _Rules, int]] = [("", (), device_of(self.found.top.parent))]
        while waiting:
            base, rules, device_around = waiting.pop()
            entries = self._entries(base)
            device = device_of(self.found.top / base) or device_around
            if device_around not in (device, 0):
                self.found.mounts.add(nfc(base.rstrip("/")) or ".")
            if (lines := self._ignore_lines(base, entries)) is None:
                continue
            rules = ((base, GlobRules.compile(lines)), *rules) if lines else rules
            waiting.extend((folder, rules, device) for folder in self._visit(base, entries, rules))

    def listing(self) -> Listing:
        """Return the files by path; if names differ in Unicode form only, the NFC file gets NFC."""
        files: dict[str, SourceFile] = {}
        self.files.sort(key=lambda one: (nfc(one[0]) != one[0], one[0]))
        for path, absolute, info in self.files:
            name = path if nfc(path) in files else nfc(path)
            mtime_ns, ctime_ns = (min(ns, LATEST_NS) for ns in (info.st_mtime_ns, info.st_ctime_ns))
            mount = next(filter(self.found.mounts.__contains__, folders_above(name)), None)
            inode = info.st_ino & LATEST_NS
            files[name] = SourceFile(name, absolute, info.st_size, mtime_ns, mount, ctime_ns, inode)
        listed = tuple(files[name] for name in sorted(files))
        skipped = tuple(sorted(self.skipped, key=lambda file: (file.path, file.reason)))
        return replace(self.found, files=listed, skipped=skipped, unmatched=tuple(self.unmatched))

    def _entries(self, base: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.found.top / base) as entries:
                return list(entries)
        except OSError as error:
            if not base:
                reason = f"{_printable(str(self.found.top))} cannot be listed: {error.strerror}"
                raise SourceError(reason) from error
            self._skip(base.rstrip("/"), f"folder cannot be listed: {error.strerror}")
            return []

    def _ignore_lines(self, base: str, entries: Sequence[os.DirEntry[str]]) -> list[str] | None:
        """Return the folder's own rules; ``None`` if they cannot be read: then it is skipped."""
        lines: list[str] = []
        for name in filter({entry.name for entry in entries}.__contains__, IGNORE_FILES):
            try:
                with open_regular(self.found.top / base / name) as handle:
                    content = handle.read(_MAX_IGNORE_FILE + 1)
                if len(content) > _MAX_IGNORE_FILE:
                    raise TransientReadError(f"it has over {_MAX_IGNORE_FILE:,} bytes")  # noqa: TRY301
                lines += content.decode("utf-8-sig", "surrogateescape").splitlines()
            except TransientReadError as error:
                told = f"its rules cannot be read, so the files next to it were skipped: {error}"
                self._skip(base + name, told, place=base)
                return None
            except ReadError as error:
                self._skip(base + name, f"not an ignore file: {error}", place=base)
        return lines

    def _visit(self, base: str, entries: list[os.DirEntry[str]], rules: _Rules) -> Iterator[str]:
        """Add the files of one folder; yield the folders to enter."""
        folders = {entry.name for entry in entries if _is_folder(entry)}
        files = {nfc(entry.name) for entry in entries if entry.name not in folders}
        folded = set(map(str.casefold, files))
        for entry in entries:
            path, is_folder = base + entry.name, entry.name in folders
            named = nfc(path) + "/" * is_folder
            rules_left = self.unmatched.items()
            self.unmatched = {one: rule for one, rule in rules_left if rule.verdict(named) is None}
            try:
                if is_metadata(path):  # a folder of that name, too
                    self._add_beside(path, files, folded)
                elif self._visit_entry(path, entry, rules, is_folder=is_folder):
                    yield path + "/"
            except OSError as error:
                self._skip(path, f"cannot be read: {error.strerror}")
            except Exception as error:  # noqa: BLE001 - recorded: the other files go on
                self._skip(path, f"cannot be listed: {type(error).__name__}: {error}")

    def _visit_entry(
        self, path: str, entry: os.DirEntry[str], rules: _Rules, *, is_folder: bool
    ) -> bool:
        """Add one file, or return whether the entry is a folder to enter."""
        kind = "folder" if is_folder else "file"
        if is_passed_over(entry.name, is_folder=is_folder) or not self._is_named_well(path, kind):
            return False
        info, named = entry.stat(follow_symlinks=False), path + "/" * is_folder
        verdicts = (spec.verdict(named[len(base) :]) for base, spec in rules)
        said = next((verdict for verdict in verdicts if verdict is not None), False)
        if said or self.exclude.match(nfc(named)):  # the nearest rules decide, as in git
            self.found.left_out.update([nfc(path)] * is_folder)
        elif is_folder:
            return True
        elif self.include is None or self.include.match(nfc(path)):
            if stat.S_ISLNK(info.st_mode):
                self._add_link(path, entry)
            else:
                self._add(path, self.found.top / path, info)
        return False

    def _add_beside(self, path: str, files: Collection[str], folded: Collection[str]) -> None:
        name = nfc(path).rpartition("/")[2]
        is_read, target = is_rightly_named(name, files, folded), name.removesuffix(SIDECAR)
        self.found.beside[nfc(path)] = self.found.top / path if is_read else None
        if not is_read:
            self._skip(path, _MISNAMED)
        elif target != name and target not in files:
            self._skip(path, f"it has metadata for {_printable(target)}, which is not there")

    def _add_link(self, path: str, entry: os.DirEntry[str]) -> None:
        try:
            target = Path(entry.path).resolve(strict=True)
            info = target.lstat()
        except (OSError, RuntimeError):
            self._skip(path, "the symlink leads nowhere, or in a circle")
            return
        if not target.is_relative_to(self.found.top):
            self._skip(path, "not followed: the symlink leads out of the folder")
        elif stat.S_ISDIR(info.st_mode):
            self._skip(path, "not followed: the symlink leads to a folder")
        else:
            self._add(path, target, info)
            self.found.links[nfc(path)] = nfc(target.relative_to(self.found.top).as_posix())

    def _add(self, path: str, absolute: Path, info: os.stat_result) -> None:
        extension, limit = file_type(path), self.limits.text_bytes
        if extension in STREAMED:
            limit = max(limit, MAX_STREAMED_BYTES)
        elif extension in DOCUMENT_EXTENSIONS:
            limit = self.limits.document_bytes
        if not stat.S_ISREG(info.st_mode):
            self._skip(path, f"not a regular file ({file_kind(info.st_mode)})")
        elif info.st_size > limit:
            self._skip(path, f"too large: {info.st_size:,} bytes; the limit is {limit:,}")
        else:
            self.files.append((path, absolute, info))

    def _is_named_well(self, path: str, kind: str) -> bool:
        if _printable(path) == path:
            return True
        self._skip(path, f"{kind} name is not valid UTF-8")
        return False

    def _skip(self, path: str, reason: str, *, place: str | None = None) -> None:
        place = (path if place is None else place).rstrip("/")
        known = os.fsencode(place).decode("utf-8", "replace")
        self.skipped.append(SkippedFile(_printable(path), reason, nfc(known)))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def is_passed_over(name: str, *, is_folder: bool) -> bool:
    """Return whether the name of a file or folder below the root excludes it."""
    is_converted = is_folder and name == CONVERTED_FOLDER
    return not is_converted and (name.startswith(".") or name in IGNORED_FOLDERS)


def _printable(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
