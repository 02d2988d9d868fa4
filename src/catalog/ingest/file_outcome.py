"""How one file fares in an indexing run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from catalog.core.documents import ParsedDocument
from catalog.core.errors import CutShortError, EmptyDocumentError, ReadError, TransientReadError
from catalog.ingest.description import describe, drop_claims
from catalog.ingest.discovery import SourceFile
from catalog.ingest.originals import Originals
from catalog.ingest.readers import ReadFailure, ReadLimits, read_file
from catalog.ingest.readers.opening import digest_file
from catalog.ingest.sidecars import Sidecars, named_elsewhere, sidecar_target
from catalog.ingest.sync_report import METADATA, Failure
from catalog.store.manifest import State

_MAX_REMARKS = 20
_NO_SIDECAR = (
    "as text: no file here has the name that it is the metadata of "
    "(name.ext.meta.yaml is for name.ext; .catalog.yaml is for its folder)"
)


@dataclass(slots=True)
class FileOutcome:
    """How a file fares in this run.

    ``begun_at`` is when reading it began, in seconds: what is written to the file after that may
    be unread. ``paths`` are those of its documents, ``unchanged`` counts the ones to be left as
    they are.
    ``retry`` says that the next run may fare better though the file is the same; without
    ``is_whole`` it was not read to its end, so that a document that is missing may still be there.
    ``refused`` are the paths of those whose part of the file cannot be read. ``digest`` is a hash
    of the file's bytes. ``is_made_elsewhere`` says that a document of it names a file in another
    folder as what it was made of. ``dates`` gives the unchanged documents the file's date, by path.
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
    is_made_elsewhere: bool = False
    dates: dict[str, str | None] = field(default_factory=dict)
    _noted: int = 0

    def fail(self, path: str, reason: str, *, retry: bool = False) -> None:
        """Note why the file, or the document at ``path``, is not wholly indexed."""
        self.failures.append(Failure(path, reason))
        self.retry = self.retry or retry

    def read(
        self, top: Path, limits: ReadLimits, originals: Originals, sidecars: Sidecars
    ) -> Iterator[ParsedDocument]:
        """Yield the documents of the file, named by their originals; note what cannot be read.

        They have what is said of them beside the file.
        """
        file = self.file
        try:
            self.digest = digest_file(file.absolute, root=top)  # first: what changes then is seen
            sidecars.check(file.path)
            for item in read_file(file.absolute, file.path, root=top, limits=limits):
                if isinstance(item, ReadFailure):
                    self.fail(item.path, item.reason)
                    self.refused |= {item.document} if item.document is not None else set()
                    continue
                named = originals.name_original(drop_claims(item), file.path)
                document = self._described(named, sidecars)
                if document is not None:
                    yield document
            if sidecar_target(file.path) is not None:
                self.fail(file.path, _NO_SIDECAR)
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

    def unread(self, known: AbstractSet[str]) -> AbstractSet[str]:
        """Return those of the file's known documents that may be in it still, but were not read."""
        missing = known - self.paths
        return missing & self.refused if self.is_whole else missing

    def _described(self, parsed: ParsedDocument, sidecars: Sidecars) -> ParsedDocument | None:
        """Return the document with what is said of it; ``None`` if it must stay as it was."""
        self.is_made_elsewhere |= bool(named_elsewhere(parsed))
        try:
            document, remarks = describe(parsed, sidecars.fields_of(parsed, self.file.path))
        except ReadError as error:
            self.fail(parsed.path, str(error))
            self.refused.add(parsed.path)
            return None
        self._note(parsed.path, remarks)
        return document

    def _note(self, path: str, remarks: Sequence[str]) -> None:
        """Note what was said of a document and not taken, for so many documents of a file."""
        if not remarks or self._noted >= _MAX_REMARKS:
            return
        self._noted += 1
        more = "; further ones of this file are not named" if self._noted == _MAX_REMARKS else ""
        self.fail(path, f"{METADATA}{'; '.join(remarks)}{more}")

    @property
    def reason(self) -> str | None:
        """The reason of the first failure, ``None`` without any."""
        return self.failures[0].reason if self.failures else None

    @property
    def state(self) -> State:
        """The state for the manifest; a failure that would only repeat itself is done with."""
        if not self.retry:
            return "done"
        return "partial" if self.paths else "failed"
