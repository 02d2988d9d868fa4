"""Golden queries: questions with labelled answers, and their check against a dataset."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from catalog.core.errors import CatalogError
from catalog.core.filters import check_fields, parse_filters
from catalog.library.get import DocumentPlaces, cut_part
from catalog.library.names import WHOLE, DocumentPart, Names
from catalog.store import Database
from catalog.store.chunks import (
    StoredDocument,
    find_by_path,
    list_fields,
    list_paths,
    read_documents,
)
from catalog.store.restriction import Restriction, allowed_paths

if TYPE_CHECKING:
    from sqlalchemy import Connection

Difficulty = Literal["easy", "medium", "hard", "fusion"]
QueryKind = Literal["semantic", "exact", "metadata", "temporal", "filtered", "unanswerable"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
KINDS: tuple[QueryKind, ...] = get_args(QueryKind)
MAX_GRADE = 10
_NAMED = 10  # labels or queries in a warning
_QUOTED = 60  # characters of a label's words in a message
_ALIKE = 0.6  # least likeness of changed words, 0 to 1


class ClosedModel(BaseModel):
    """Values of a file that are checked and do not change."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Span(ClosedModel):
    """The answer's position in the document: its words, or a range.

    Offsets are characters of the document's text, ``end`` exclusive; lines are the file's, from 1,
    inclusive; times are seconds.
    """

    text: str | None = Field(None, min_length=1)
    start: int | None = Field(None, ge=0)
    end: int | None = Field(None, ge=1)
    line_start: int | None = Field(None, ge=1)
    line_end: int | None = Field(None, ge=1)
    time_start: float | None = Field(None, ge=0)
    time_end: float | None = Field(None, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, value: Any) -> Any:
        """Read a bare text as the words, a pair of whole numbers as ``[start, end]``."""
        if isinstance(value, str):
            return {"text": value}
        if isinstance(value, list) and len(value) == 2:
            return {"start": value[0], "end": value[1]}
        return value

    @model_validator(mode="after")
    def _has_a_range(self) -> Span:
        pairs = [
            (self.start, self.end),
            (self.line_start, self.line_end),
            (self.time_start, self.time_end),
        ]
        if self.text is None and all(pair == (None, None) for pair in pairs):
            raise ValueError("a span needs text, start and end, lines or times")
        for low, high in pairs:
            if (low is None) != (high is None) or (low is not None and high < low):  # type: ignore[operator]
                raise ValueError("a span's range needs both ends, in order")
        return self


Grade = Annotated[
    int,
    Field(ge=0, le=MAX_GRADE),
    BeforeValidator(lambda value: str(value).lower() if isinstance(value, bool) else value),
]
"""From 0 to 3, as ``golden check`` notes; other collections' grades go further."""


class Expected(ClosedModel):
    """One judged document; grade 0 means that it was looked at and does not answer."""

    path: str = Field(min_length=1)
    grade: Grade = 1
    span: Span | None = None


class Nugget(ClosedModel):
    """A part of a right answer, in one sentence; a ``vital`` one is required."""

    text: str = Field(min_length=1)
    importance: Literal["vital", "okay"] = "vital"


def _read_time(text: str) -> str:
    """Check that a text is a date and time with its distance from UTC."""
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time needs its distance from UTC, such as Z")
    return text


Person = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\s\x00-\x1f].*$")]
Time = Annotated[str, AfterValidator(_read_time)]


class Judgement(ClosedModel):
    """One person's grade of a document, with the backends whose lists they had seen.

    A ``settled`` one is the decision between people who disagreed.
    """

    path: str = Field(min_length=1)
    grade: Grade
    span: Span | None = None
    by: Person
    at: Time
    seen: tuple[str, ...] = ()
    settled: bool = False


class Preference(ClosedModel):
    """One person's choice between the lists of two backends, as they were shown.

    ``at`` is when they first chose. In mode ``blind`` the names were hidden, in ``interleaved`` the
    lists were one.
    """

    left: str = Field(min_length=1)
    right: str = Field(min_length=1)
    preferred: Literal["left", "right", "equal", "neither"]
    mode: Literal["open", "blind", "interleaved"]
    by: Person
    at: Time

    @property
    def winner(self) -> str | None:
        """Return the name of the preferred backend."""
        return {"left": self.left, "right": self.right}.get(self.preferred)


def _is_absent(value: object) -> bool:
    return value in (None, "", ())


class GoldenQuery(ClosedModel):
    """A question with its judged documents, and the parts of a right answer.

    ``expected`` has the labels that count. ``judgements`` are the labels of each person, and
    ``preferences`` compare two searches. ``answer``, ``nuggets`` and ``answerable`` are for answers
    only; searches are not measured by them. ``answerable`` says whether the question should be
    answered if no other label shows it.
    """

    id: str = Field(min_length=1, pattern=r"^[^\s\x1c-\x1f]+$")  # a column of TREC run files
    query: str = Field(min_length=1)
    difficulty: Difficulty | None = None
    kind: QueryKind | None = None
    expected: tuple[Expected, ...] = ()
    filters: Any = None
    note: str = ""
    answer: str = Field("", exclude_if=_is_absent)
    nuggets: tuple[Nugget, ...] = Field((), exclude_if=_is_absent)
    answerable: bool | None = Field(None, exclude_if=_is_absent)
    judgements: tuple[Judgement, ...] = Field((), exclude_if=_is_absent)
    preferences: tuple[Preference, ...] = Field((), exclude_if=_is_absent)

    @model_validator(mode="after")
    def _is_consistent(self) -> GoldenQuery:
        if not self.query.strip():
            raise ValueError("the query is blank")
        counts = Counter(label.path for label in self.expected)
        twice = [path for path, count in counts.items() if count > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} is judged twice")
        if self.kind == "unanswerable" and self.relevant:
            raise ValueError("an unanswerable query must not expect a document above grade 0")
        if self.kind not in (None, "unanswerable") and not self.relevant:
            raise ValueError(
                "no document has a grade above 0: label one, or call the query unanswerable"
            )
        has_labels = bool(self.relevant or self.answer or self.nuggets)
        is_unanswerable = self.kind == "unanswerable"
        if (self.answerable is False and has_labels) or (self.answerable and is_unanswerable):
            raise ValueError(
                f"answerable is {self.answerable}, but its kind or labels say the opposite"
            )
        if self.kind == "filtered" and not self.filters:
            raise ValueError("a filtered query needs filters")
        if self.filters is not None:
            try:
                parse_filters(self.filters)
            except CatalogError as error:
                raise ValueError(f"filters: {error}") from error
        return self

    @property
    def grades(self) -> dict[str, int]:
        """Return all grades, by path."""
        return {label.path: label.grade for label in self.expected}

    @property
    def relevant(self) -> dict[str, int]:
        """Return grades above 0, by path."""
        return {label.path: label.grade for label in self.expected if label.grade > 0}

    @property
    def is_answerable(self) -> bool:
        """Return whether some document is labelled as an answer."""
        return bool(self.relevant)

    @property
    def has_answer(self) -> bool:
        """Return whether the question should be answered."""
        if self.answerable is not None:
            return self.answerable
        return bool(self.relevant or self.answer or self.nuggets)


@dataclass(frozen=True)
class GoldenSet:
    """Queries with unique ids, in the order they were written."""

    name: str
    queries: tuple[GoldenQuery, ...]

    def __len__(self) -> int:
        return len(self.queries)

    def __iter__(self) -> Iterator[GoldenQuery]:
        return iter(self.queries)

    @property
    def answerable(self) -> tuple[GoldenQuery, ...]:
        """Return the queries that metrics are computed over."""
        return tuple(query for query in self.queries if query.is_answerable)

    @property
    def unanswerable(self) -> tuple[GoldenQuery, ...]:
        """Return the queries that no document answers."""
        return tuple(query for query in self.queries if not query.is_answerable)

    @property
    def digest(self) -> str:
        """Return a hash of all queries and labels, independent of their order; hexadecimal.

        Who judged, and which search they preferred, does not change it.
        """
        people = {"judgements", "preferences"}
        lines = "\n".join(sorted(query.model_dump_json(exclude=people) for query in self.queries))
        return hashlib.sha256(lines.encode()).hexdigest()


def with_own_names(golden: GoldenSet, database: Database, dataset: str) -> GoldenSet:
    """Return the set with the dataset's own names where a label names a document otherwise.

    Any name of one document counts that ``catalog get`` takes, such as its whole path.
    """
    with database.read() as connection:
        names = Names(connection, dataset)
        own = {one.path: one.path for query in golden for one in query.expected}
        for path in own.keys() - names.paths.keys():
            own[path], *others = names.resolve(path) or [path]
            own[path] = path if others else own[path]

    def named(query: GoldenQuery) -> GoldenQuery:
        labels = (it.model_copy(update={"path": own[it.path]}) for it in query.expected)
        return query.model_copy(update={"expected": (*labels,)})

    if all(path == name for path, name in own.items()):
        return golden
    return replace(golden, queries=tuple(map(named, golden)))


def find_dataset_problems(golden: GoldenSet, database: Database, dataset: str) -> list[str]:
    """Find labels that do not fit a dataset: missing documents, missing spans, wrong filters."""
    with database.read() as connection:
        paths = frozenset(list_paths(connection, dataset))
        fields = list_fields(connection, dataset)
        return [
            f"{query.id}: {problem}"
            for query in golden
            for problem in _query_problems(connection, dataset, query, paths, fields)
        ]


def find_label_warnings(golden: GoldenSet, database: Database, dataset: str) -> list[str]:
    """Name the labels whose documents are not in the dataset, and the queries without a label."""
    with database.read() as connection:
        paths = frozenset(list_paths(connection, dataset))
    labelled = dict.fromkeys(label.path for query in golden for label in query.expected)
    absent = [path for path in labelled if path not in paths]
    unlabelled = [
        query.id for query in golden if not query.expected and query.kind != "unanswerable"
    ]
    warnings = []
    if absent:
        warnings.append(
            f"{len(absent)} of {len(labelled)} labelled documents are not in {dataset!r}, so no "
            f"search of it can find them: {_first_few(absent)}"
        )
    if unlabelled:
        warnings.append(
            f"{len(unlabelled)} of {len(golden)} queries have no label and count as unanswerable: "
            f"{_first_few(unlabelled)}"
        )
    return warnings


def _first_few(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class Drift:
    """A label whose words moved to another document, or changed.

    ``new_path`` and ``new_words`` are where and how they stand now; both are ``None`` if they are
    nowhere, or in several documents.
    """

    query: str
    path: str
    words: str
    new_path: str | None = None
    new_words: str | None = None

    def __str__(self) -> str:
        about = f"{self.query}: {self.path!r}"
        if self.new_path is None:
            told = "is in no document or in several: label it again"
            return f"{about}: {shortened(self.words)} {told}"
        if self.new_path == self.path:
            return f"{about}: {shortened(self.words)} → {shortened(self.new_words or '')}"
        return f"{about} → {self.new_path!r}, which has {shortened(self.words)}"


def shortened(words: str) -> str:
    """Return the first words of a quote, in quotation marks."""
    flat = " ".join(words.split())
    return f"“{flat if len(flat) <= _QUOTED else flat[: _QUOTED - 1] + '…'}”"


def find_drift(
    golden: GoldenSet,
    database: Database,
    dataset: str,
    quotes: Mapping[tuple[str, str], str] | None = None,
) -> list[Drift]:
    """Find the labels whose words are no longer at their place, and where they are now.

    The words are those of the label's span; for a document that is gone ``quotes`` may have some,
    by question and path. White space does not count. Documents that the question does not judge go
    first. Changed words are the passage of the same document that has most of them in the same
    order, at least six of ten.
    """
    with database.read() as connection:
        texts = {one.path: one.text for one in read_documents(connection, dataset)}
    flat = {path: "".join(text.split()) for path, text in texts.items()}
    found = []
    for query in golden:
        for label in query.expected:
            quoted, text = label.span and label.span.text, texts.get(label.path)
            words = quoted or ((quotes or {}).get((query.id, label.path)) if text is None else None)
            if label.grade == 0 or not words or (text is not None and words in text):
                continue
            wanted, new = "".join(words.split()), None
            if wanted in flat.get(label.path, ""):
                places = [label.path]
            else:
                places = [path for path, other in flat.items() if wanted in other]
                places = [path for path in places if path not in query.grades] or places
            if len(places) == 1:
                new = _as_written(texts[places[0]], wanted) if quoted else None
            elif text is not None and (new := _nearest(text, words)):
                places = [label.path]
            path = places[0] if len(places) == 1 else None
            found.append(Drift(query.id, label.path, words, path, new))
    return found


def _as_written(text: str, wanted: str) -> str:
    """Return the part of a text that is ``wanted`` without its white space."""
    at = [place for place, char in enumerate(text) if not char.isspace()]
    first = "".join(text.split()).index(wanted)
    return text[at[first] : at[first + len(wanted) - 1] + 1]


def _nearest(text: str, words: str) -> str | None:
    """Return the passage of a text around the longest run of the words, if it has most of them."""
    tokens, wanted = [*re.finditer(r"\S+", text)], words.split()
    given = [token[0] for token in tokens]
    match = SequenceMatcher(None, given, wanted, autojunk=False).find_longest_match()
    first = max(0, match.a - match.b)
    part = given[first : first + len(wanted)]
    if not match.size or SequenceMatcher(None, part, wanted, autojunk=False).ratio() < _ALIKE:
        return None
    return text[tokens[first].start() : tokens[first + len(part) - 1].end()]


def follow_drift(queries: Sequence[GoldenQuery], drift: Sequence[Drift]) -> list[GoldenQuery]:
    """Return the queries with labels at their new place, where there is one that is not judged."""
    known = {(one.query, one.path): one for one in drift if one.new_path is not None}

    def followed(query: GoldenQuery, label: Expected) -> Expected:
        one = known.get((query.id, label.path))
        if one is None or (one.new_path != label.path and one.new_path in query.grades):
            return label
        span = label.span
        if span is not None and one.new_words is not None:  # lines and offsets were of the old text
            span = Span(text=one.new_words, time_start=span.time_start, time_end=span.time_end)
        return label.model_copy(update={"path": one.new_path, "span": span})

    return [
        query.model_copy(update={"expected": tuple(followed(query, it) for it in query.expected)})
        for query in queries
    ]


def with_words(golden: GoldenSet, database: Database, dataset: str) -> GoldenSet:
    """Return the set with the words of each span that names lines or characters of a document.

    So every search that gives its passages' text can be compared. Spans that do not fit stay.
    """
    with database.read() as connection:

        def told(label: Expected) -> Expected:
            span = label.span
            if span is None or span.text or span.end is span.line_end is None:
                return label
            document = find_by_path(connection, dataset, label.path)
            words = document and _words_at(connection, document, span)
            if not words:
                return label
            return label.model_copy(update={"span": span.model_copy(update={"text": words})})

        expected = {query.id: tuple(map(told, query.expected)) for query in golden}
    changed = (query.model_copy(update={"expected": expected[query.id]}) for query in golden)
    return replace(golden, queries=tuple(changed))


def _words_at(connection: Connection, document: StoredDocument, span: Span) -> str | None:
    """Return the words of a document in a span's characters or lines."""
    if span.end is not None:
        return document.text[span.start : span.end].strip()
    try:
        places = DocumentPlaces.read(connection, document.source_doc_id)
        found = cut_part(document, places, DocumentPart(span.line_start, span.line_end))
    except CatalogError:  # it has no such lines, or is damaged
        return None
    return found.text.strip() if found.unit == "line" else None


def find_duplicate_queries(golden: GoldenSet) -> list[str]:
    """Find texts that several queries with the same filters have."""
    counts = Counter((query.query.strip().casefold(), repr(query.filters)) for query in golden)
    return [text for (text, _), count in counts.items() if count > 1]


def find_allowed_documents(
    database: Database, dataset: str, query: GoldenQuery
) -> frozenset[str] | None:
    """Return the paths of documents that a query's filters allow, ``None`` for all."""
    tree = parse_filters(query.filters)
    if tree is None:
        return None
    with database.read() as connection:
        return allowed_paths(connection, Restriction(dataset, filter=tree))


def _query_problems(
    connection: Connection,
    dataset: str,
    query: GoldenQuery,
    paths: frozenset[str],
    fields: set[str],
) -> Iterator[str]:
    tree = parse_filters(query.filters)
    allowed = paths
    if tree is not None:
        try:
            check_fields(tree, fields)
            allowed = allowed_paths(connection, Restriction(dataset, filter=tree))
        except CatalogError as error:
            yield f"filters: {error}"
    for label in query.expected:
        if label.path not in paths:
            matches = get_close_matches(label.path, paths, n=1)
            yield f"no document {label.path!r}" + (f"; is it {matches[0]!r}?" if matches else "")
        elif label.grade > 0 and label.path not in allowed:
            yield f"{label.path!r} is expected, but the filters forbid it"
        elif label.span is not None and (document := find_by_path(connection, dataset, label.path)):
            yield from _span_problems(connection, document, label.span)


def _span_problems(connection: Connection, document: StoredDocument, span: Span) -> Iterator[str]:
    if span.text is not None and span.text not in document.text:
        yield f"{document.path!r} does not contain the span {span.text!r}"
    if span.end is not None and span.end > len(document.text):
        yield f"the span ends at {span.end}, but {document.path!r} at {len(document.text)}"
    if span.line_end is not None:
        whole = cut_part(document, DocumentPlaces.read(connection, document.source_doc_id), WHOLE)
        if whole.unit != "line" or whole.total is None:
            yield f"{document.path!r} has no lines; its unit is {whole.unit}"
        elif span.line_end > whole.total:
            yield f"the span ends in line {span.line_end}, but {document.path!r} in {whole.total}"
