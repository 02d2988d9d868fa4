"""Which passages of a dataset a suite means, and whether their metadata leads back to a source."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from catalog.core.documents import MetadataValue
from catalog.core.errors import StoreDamagedError
from catalog.core.filters import Filter, Op, condition, parse_filters
from catalog.core.results import SearchResult
from catalog.evaluation.validation.measurement import ShownPassage
from catalog.evaluation.validation.suite import SuiteQuery
from catalog.ingest.readers.metadata import is_web_address
from catalog.store import Database
from catalog.store.chunks import StoredDocument, find_by_path
from catalog.store.engine_types import Restriction, allowed_paths, allowed_seqs, read_chunk_ids


class DatasetSources:
    """The passages of one dataset by the conditions of queries; each is asked of the store once."""

    def __init__(self, database: Database, dataset: str, required: Collection[str]) -> None:
        self._database, self._dataset, self._required = database, dataset, required
        self._chunks: dict[str, frozenset[str]] = {}
        self._documents: dict[str, StoredDocument | None] = {}

    def chunk_ids(self, tree: Filter) -> frozenset[str]:
        """Return the ids of the passages that fulfil a condition."""
        key = repr(tree)
        if key not in self._chunks:
            with self._database.read() as connection:
                seqs = allowed_seqs(connection, Restriction(self._dataset, filter=tree))
                rows = [] if seqs is None else [int(seq) for seq in seqs]
                ids = read_chunk_ids(connection, self._dataset, rows)
            self._chunks[key] = frozenset(ids.values())
        return self._chunks[key]

    def allowed(self, query: SuiteQuery) -> frozenset[str] | None:
        """Return the passages that a query's filters allow; ``None``: all."""
        tree = parse_filters(query.filters)
        return None if tree is None else self.chunk_ids(tree)

    def right(self, query: SuiteQuery) -> frozenset[str]:
        """Return the passages that are right for a query, within its filters."""
        ids = frozenset[str]().union(*(self.chunk_ids(tree) for tree in query.right))
        allowed = self.allowed(query)
        return ids if allowed is None else ids & allowed

    def absent(self, query: SuiteQuery) -> tuple[int, ...]:
        """Return the places of expected sources that no passage within the filters is of."""
        right = self.right(query)
        return tuple(
            place for place, tree in enumerate(query.sources) if not self.chunk_ids(tree) & right
        )

    def judge(self, result: SearchResult, query: SuiteQuery) -> ShownPassage:
        """Judge a passage for the query; its copies count as well."""
        allowed, chunk_id = self.allowed(query), result.chunk_id
        group = {chunk_id, *(other.chunk_id for other in result.also_in)}
        parts = result.explain.contributions if result.explain else ()
        cosines = [part.raw_score for part in parts if part.leg == "vector"]
        return ShownPassage(
            rank=result.rank,
            chunk_id=chunk_id,
            path=result.path,
            citation=result.citation.removeprefix("[source: ").removesuffix("]"),
            score=result.score,
            relevance=result.relevance,
            cosine=max(cosines, default=None),
            sources=frozenset(
                place
                for place, tree in enumerate(query.sources)
                if not group.isdisjoint(self.chunk_ids(tree))
            ),
            is_right=not group.isdisjoint(self.right(query)),
            is_outside=allowed is not None and chunk_id not in allowed,
            problems=tuple(self._problems(result)),
        )

    def count_incomplete(self) -> dict[str, int]:
        """Count the documents that lack a required field in some passage, by field."""
        counts = {}
        with self._database.read() as connection:
            for name in self._required:
                tree = condition(name, Op.IS_EMPTY, None)
                lacking = allowed_paths(connection, Restriction(self._dataset, filter=tree))
                counts[name] = len(lacking)
        return counts

    def _problems(self, result: SearchResult) -> Iterator[str]:
        """Yield what keeps a passage's metadata from leading back to its source."""
        document = self._document(result.path)
        if document is None:
            yield "its document is not in the store, or is damaged"
            return
        if document.text[result.start_offset : result.end_offset] != result.text:
            yield "its text is not what its document has at its place"
        if not result.docid or not document.content_hash.startswith(result.docid):
            yield "its docid is another revision's"
        for name in self._required:
            yield from _field_problems(name, _value_of(name, result, document))

    def _document(self, path: str) -> StoredDocument | None:
        if path not in self._documents:
            try:
                with self._database.read() as connection:
                    self._documents[path] = find_by_path(connection, self._dataset, path)
            except StoreDamagedError:
                self._documents[path] = None
        return self._documents[path]


def _value_of(name: str, result: SearchResult, document: StoredDocument) -> MetadataValue | None:
    """Return what a passage has under a name that filters know."""
    if name == "section":
        return result.sections
    if name == "page":
        return result.locator.page
    value = document.metadata.get(name)
    if value is None and name == "page_title":
        return document.title
    return getattr(result, name, None) if value is None else value


def _field_problems(name: str, value: MetadataValue | None) -> Iterator[str]:
    texts = value if isinstance(value, tuple | list) else () if value is None else (value,)
    if not any(str(text).strip() for text in texts):
        yield f"no {name}"
    elif name == "source_url" and not all(map(is_web_address, texts)):
        yield "its source_url is no web address"
