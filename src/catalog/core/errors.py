"""Every error this package raises on purpose."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MARK = r"(?:(?<!\w)['\"]|['\"](?!\w))"  # no apostrophe within a word
_LONG_QUOTE = re.compile(
    rf"({_MARK}(?:(?!{_MARK}).){{200}})(?:(?!{_MARK}).)+(?={_MARK})", re.DOTALL
)


class CatalogError(Exception):
    """Base of all errors raised on purpose; catching it never hides a bug.

    ``quotes_documents``: the message quotes names or fields of documents, so a language model must
    see it as data. A stretch in quotation marks is cut at 200 characters: it repeats an argument.
    """

    quotes_documents: bool = False

    def __init__(self, *told: object) -> None:
        cut = (_LONG_QUOTE.sub(r"\1…", one) if isinstance(one, str) else one for one in told)
        super().__init__(*cut)


class ConfigError(CatalogError):
    """A setting is wrong: fix it and start again."""


class MissingExtraError(ConfigError):
    """An optional package is absent: run the pip command in the message."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{what} needs an optional package: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the pip command for an extra; from a checkout, if this package came from one."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        came_from = distribution("catalog-search").read_text("direct_url.json")
    except PackageNotFoundError:  # run from its sources
        came_from = "a checkout"
    if came_from is None:
        return f"pip install 'catalog-search[{extra}]'"
    return f"pip install -c constraints.txt '.[{extra}]'"


class ModelUnavailableError(ConfigError):
    """A model's files are not on disk and cannot be downloaded: do as the message says."""


class InputError(CatalogError):
    """The call is wrong: correct the argument; a retry will not help."""


class QueryError(InputError):
    """The query has nothing to search for."""


class NoStoreError(InputError):
    """There is no store at this place: check the home, or build a dataset there."""


class UnknownDatasetError(InputError):
    """No dataset has that name: build it first, or use one the message lists."""


class DocumentNotFoundError(InputError):
    """No document has that path or docid; ``suggestions`` has similar names."""

    def __init__(self, message: str, suggestions: Sequence[str] = ()) -> None:
        self.problem, self.suggestions = message, tuple(suggestions)
        self.quotes_documents = bool(suggestions)
        names = [" ".join(name.split()) for name in self.suggestions]  # on one line, as elsewhere
        hint = f"; did you mean {', '.join(names)}?" if names else ""
        super().__init__(message + hint)


class DocumentReferenceError(InputError):
    """The reference names several documents, or lines that its document does not have."""

    quotes_documents = True


class SourceError(InputError):
    """The folder or file to index does not exist or cannot be listed."""


class FilterError(InputError):
    """The filter is invalid: the message names the part."""


class UnknownFieldError(FilterError):
    """No document of the dataset has that field: the message lists the existing ones."""

    quotes_documents = True


class UnknownValueError(FilterError):
    """No document of the dataset has that file type or tag: the message lists the existing ones."""

    quotes_documents = True


class GoldenSetError(InputError):
    """Golden queries or judgements cannot be used: correct the lines the message names."""


class BackendError(InputError):
    """A search to be compared cannot be loaded, or its results have an unknown form."""


class BlindComparisonError(InputError):
    """These queries cannot show a difference: judge more documents, or choose other queries."""


class ReadError(CatalogError):
    """A file cannot be read: it is skipped and reported, and the run continues."""


class EmptyDocumentError(ReadError):
    """The file contains no text: it is reported, and its earlier passages are removed."""


class TransientReadError(ReadError):
    """The file cannot be read now, but may be intact: the next run tries again."""


class CutShortError(TransientReadError):
    """The file is still being written, or lost its end: its text is read, nothing is removed."""


class StoreError(CatalogError):
    """The database cannot do the operation."""


class StoreBusyError(StoreError):
    """Another process holds the write lock: try again in a moment."""


class StoreUnreachableError(StoreError):
    """The database server is away: run the last change again when it answers, it may be lost."""


class StoreDamagedError(StoreError):
    """The file is not a usable store: restore a copy, or rebuild from the documents."""


class DamagedDocumentError(StoreDamagedError):
    """The stored data of a document is damaged: index it again. Other documents still answer."""

    def __init__(self, document: str, what: str) -> None:
        self.document = document
        super().__init__(f"{document}: {what} is damaged and not shown: run 'catalog doctor'")


class ForkedError(StoreError):
    """This process was forked from the one that opened the store: open the store after the fork."""


class EmbeddingMismatchError(StoreError):
    """The store has another model's vectors: rebuild it, or use that model."""


class SemanticRetrievalError(CatalogError):
    """Embeddings of a cache folder cannot be searched: see the kinds below."""


class SemanticIndexError(SemanticRetrievalError, ValueError):
    """The files of the folder do not make an index: correct the ones in the message."""


class SemanticQueryError(SemanticRetrievalError, InputError, ValueError):
    """The query vector is invalid: correct it; a retry will not help."""


class SemanticConfigError(SemanticRetrievalError, ConfigError, ValueError):
    """A setting of the retriever is invalid: correct it."""


class EmbeddingError(CatalogError):
    """The embedding model failed on a text, or returned an invalid vector."""


class EmbeddingServerError(EmbeddingError):
    """The embedding model's server cannot answer for ``retry_after`` seconds: run again later."""

    def __init__(
        self, message: str, retry_after: float | None = None, status_code: int | None = None
    ) -> None:
        self.retry_after, self.status_code = retry_after, status_code
        super().__init__(message)


class RerankError(CatalogError):
    """The reranker failed or returned invalid scores: the fused order stays."""


class LLMError(CatalogError):
    """A language model failed or wrote an invalid reply: the search continues without it."""


class LLMTimeoutError(LLMError):
    """The language model did not answer in time: allow more time, or use a smaller model."""


class ArtifactSchemaError(LLMError):
    """A language model wrote wrong headings twice; ``draft`` has its text."""

    def __init__(self, message: str, draft: str) -> None:
        self.draft = draft
        super().__init__(message)


class LLMBusyError(LLMError):
    """Earlier calls of the language model are still running: try again when one has ended."""


class EngineError(CatalogError):
    """An index engine failed; the SQL truth is intact, so the index can be rebuilt."""


class EngineBlockedError(EngineError):
    """An index cannot be used now, for lack of space, memory or permissions: it is not rebuilt."""


class EngineLockedError(EngineBlockedError):
    """Another process has the index folder open: the engine ``flat`` answers meanwhile."""


class EngineUnreachableError(EngineError):
    """The server with an index does not answer: start it, or correct its address."""


class ServingError(CatalogError):
    """A server cannot answer now: try again in a moment, or ask for less."""


class OutOfTimeError(ServingError):
    """The request took longer than the server allows: ask for less, or try again."""


class NotReadyError(ServingError):
    """The server is warming up or stopping: use another one, or try again in a moment."""


class StoreReplacedError(ServingError):
    """The server's store was deleted or replaced: restart the server."""


class StageFailedError(CatalogError):
    """A stage failed or fell back under ``strict=True``: the message names it."""


class MassDeletionError(CatalogError):
    """Most files disappeared since the last run: check the drive, or allow the deletion."""
