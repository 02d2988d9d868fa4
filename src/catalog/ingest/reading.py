"""Read the files of a run, and add the metadata of their sidecars to their documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from catalog.core.dates import read_written_date
from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.errors import CutShortError, EmptyDocumentError, ReadError, TransientReadError
from catalog.core.filters import known_file_type
from catalog.core.places import WITHIN, enclosing
from catalog.ingest.discovery import SourceFile
from catalog.ingest.readers import ReadFailure, read_file
from catalog.ingest.readers.base import file_type, one_line
from catalog.ingest.readers.metadata import DATE_KEYS, LEVEL, UNREADABLE, take_title
from catalog.ingest.readers.opening import digest_file
from catalog.ingest.readers.registry import EXTENSIONS, at_levels
from catalog.ingest.sync_report import METADATA, Failure
from catalog.store.manifest import State

if TYPE_CHECKING:
    from catalog.ingest.changes import FolderChanges

TOLD_BY_CONTENT = ("media", "media_file")
_REFUSED = "{} is set only from names and content"
_UNREAD = f"the {LEVEL} in its metadata file cannot be read: only who may see everything finds it"
_MAX_WORD = 100  # characters of a source type
_DATES = frozenset(" ".join(DATE_KEYS.values()).split())


def drop_claims(parsed: ParsedDocument) -> ParsedDocument:
    """Drop the author's values for fields that only the content decides, with a remark."""
    claims = [name for name in TOLD_BY_CONTENT if name in parsed.written & parsed.metadata.keys()]
    return replace(
        parsed,
        metadata={name: value for name, value in parsed.metadata.items() if name not in claims},
        written=parsed.written.difference(claims),
        remarks=(*parsed.remarks, *map(_REFUSED.format, claims)),
    )


def describe(
    parsed: ParsedDocument, beside: Sequence[Mapping[str, MetadataValue]]
) -> tuple[ParsedDocument, tuple[str, ...]]:
    """Return the document with its metadata, and remarks on values that could not be used.

    For each field the author's value in the document counts first, then ``beside`` in its order,
    then a program's value in the file.
    """
    own = {name: value for name, value in parsed.metadata.items() if name in parsed.written}
    if not own and not beside and not parsed.remarks:
        return parsed, ()
    remarks = list(parsed.remarks)
    stated: dict[str, MetadataValue] = {}
    for fields in reversed(beside):
        others = {name: value for name, value in fields.items() if name not in TOLD_BY_CONTENT}
        remarks += [_REFUSED.format(name) for name in TOLD_BY_CONTENT if name in fields]
        stated |= _accepted(others, remarks)
    if stated.get(LEVEL) == UNREADABLE and LEVEL not in own:
        remarks.append(_UNREAD)
    title = take_title(stated)
    accepted = _accepted(own, remarks)
    known = {name: value for name, value in parsed.metadata.items() if name not in own}
    said = {**stated, **accepted}
    described = replace(
        parsed,
        metadata={**known, **said},
        title=parsed.title if "title" in parsed.written else one_line(title or parsed.title),
        file_type=str(said.get("file_type", parsed.file_type)),
        source_type=str(said.get("source_type", parsed.source_type)),
        written=parsed.written | said.keys(),
        remarks=(),
    )
    return described, tuple(remarks)


def _accepted(fields: Mapping[str, MetadataValue], remarks: list[str]) -> dict[str, MetadataValue]:
    """Drop fields with values that make no sense for them, and add remarks on these."""
    accepted = dict(fields)
    for name, value in fields.items():
        told = ""
        if name in _DATES and read_written_date(value) is None:
            told = "is not a date, or could be two: write it as 2024-05-31"
        elif name == "file_type":
            kind = known_file_type(value, EXTENSIONS) if isinstance(value, str) else None
            accepted[name], told = kind or "", "" if kind else "is not a known type such as pdf"
        elif name == "source_type" and (isinstance(value, tuple) or len(str(value)) > _MAX_WORD):
            told = "must be one short text, such as memo"
        if told:
            remarks.append(f"{name} {_shown(value)} {told}")
            if name in DATE_KEYS or name not in _DATES:
                del accepted[name]
    return accepted


def _shown(value: MetadataValue) -> str:
    text = one_line(", ".join(map(str, value)) if isinstance(value, tuple) else value)
    return repr(text if len(text) <= 60 else f"{text[:59]}…")


_MAX_REMARKS = 20


@dataclass(slots=True)
class FileOutcome:
    """The result of reading a file in this run.

    ``begun_at`` is when reading began: later writes to the file may be missed. ``paths`` are those
    of its documents; ``unchanged`` of them stay, with their ``dates``. ``retry``: the next run may
    succeed with the same file. Without ``is_whole`` the file was not read to its end, so a missing
    document may still be in it; ``refused`` are documents whose part of the file cannot be read.
    """

    file: SourceFile
    begun_at: float
    paths: set[str] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    unchanged: int = 0
    retry: bool = False
    is_whole: bool = True
    is_cut_short: bool = False
    refused: set[str] = field(default_factory=set)
    digest: str | None = None
    dates: dict[str, str | None] = field(default_factory=dict)
    _noted: int = 0

    def fail(self, path: str, reason: str, *, retry: bool = False) -> None:
        """Record why the file, or the document at ``path``, is not completely indexed."""
        self.failures.append(Failure(path, reason))
        self.retry = self.retry or retry

    def read(self, changes: FolderChanges) -> Iterator[ParsedDocument]:
        """Yield the documents of the file with their sidecars' metadata; record failures."""
        file = self.file
        try:
            top, limits = changes.top, changes.limits
            self.digest = digest_file(file.absolute, root=top)  # first, to notice later changes
            changes.sidecars.levels_of(file.path)  # raises if a sidecar cannot be read
            levels = list(self._levels_of_originals(changes))
            for item in read_file(file.absolute, file.path, root=top, limits=limits):
                if isinstance(item, ReadFailure):
                    self.fail(item.path, item.reason)
                    self.refused |= {item.document} if item.document is not None else set()
                    continue
                named = changes.originals.name_original(drop_claims(item), file.path)
                named = at_levels(named, named.metadata.get(LEVEL), *levels)
                try:
                    beside = changes.sidecars.fields_of(named, file.path)
                except ReadError as error:
                    self.fail(named.path, str(error))
                    self.refused.add(named.path)
                    continue
                document, remarks = describe(named, beside)
                self._noted += bool(remarks)
                if remarks and self._noted <= _MAX_REMARKS:
                    is_last = self._noted == _MAX_REMARKS
                    more = "; further ones in this file are not listed" if is_last else ""
                    self.fail(named.path, f"{METADATA}{'; '.join(remarks)}{more}")
                yield document
        except EmptyDocumentError as error:
            self.fail(file.path, str(error))
        except ReadError as error:
            self.fail(file.path, str(error), retry=isinstance(error, TransientReadError))
            self.is_whole = False
            self.is_cut_short = isinstance(error, CutShortError)
        except Exception as error:  # noqa: BLE001 - recorded: the other files go on
            reason = f"the reader failed: {type(error).__name__}: {error}"
            self.fail(file.path, reason, retry=True)
            self.is_whole = False

    def _levels_of_originals(self, changes: FolderChanges) -> Iterator[MetadataValue | None]:
        limits = replace(changes.limits, labels_only=True)
        originals = changes.originals.converted_from(self.file.path)
        for one in filter(None, map(changes.files.get, originals)):
            try:
                for item in read_file(one.absolute, one.path, root=changes.top, limits=limits):
                    yield None if isinstance(item, ReadFailure) else item.metadata.get(LEVEL)
            except TransientReadError:
                raise
            except ReadError:  # a picture states nothing; another file may, so it fails closed
                yield UNREADABLE if file_type(one.path) in EXTENSIONS else None

    def unread(self, known: AbstractSet[str]) -> AbstractSet[str]:
        """Return the file's known documents that were not read but may still be in it."""
        missing = known - self.paths
        return set(filter(self.is_refused, missing)) if self.is_whole else missing

    def is_refused(self, path: str) -> bool:
        """Return whether the part of the file with this document, or one around it, is unread."""
        return any(name in self.refused for name in enclosing(path))

    @property
    def reason(self) -> str | None:
        """The reason of the first failure, with the part of the file; ``None`` without any."""
        if not self.failures:
            return None
        first = self.failures[0]
        part = first.path.removeprefix(f"{self.file.path}{WITHIN}")
        return first.reason if part == first.path else f"{first.reason} ({part})"

    @property
    def state(self) -> State:
        """The state for the manifest; a failure that would only repeat itself counts as done."""
        return "done" if not self.retry else "partial" if self.paths else "failed"
