"""One meaning of a filter: the plain reading in ``core.filters.matches``, SQL, every engine."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.core.documents import MetadataScalar, MetadataValue
from catalog.core.filters import And, Condition, Filter, Not, Op, Or, matches, parse_filters
from catalog.core.scope import Scope
from catalog.store.filter_sql import text_values
from catalog.store.restriction import Restriction, allowed_seqs
from vector_bench import DATASET, Bench, bench, paths_of, vector

pytestmark = pytest.mark.filterwarnings(
    "ignore:Payload indexes have no effect in the local Qdrant:UserWarning"
)

LONG = "long " * 100
TEXTS = [
    "", "b\x1fs:ab", "a", "A", "b", "ab", "3", "3.0", "true", 'q"uote', "it's", "x\x1fs:a", "*",
    "ß", "SS", "100%", "a_b", "[0]", LONG, LONG + "!", "b\x1fs:ab", "\U0001f600", "é", "z\0z",
]  # fmt: skip
DATES = [
    "2024", "2024-06", "2024-06-01", "20240601", "2024-06-01T00:30:00+02:00", "2024-05-31T22:30Z",
    "2024-05-31 23:30:00 -02:00", "2024-06-01T23:59:59.5", "2024-05-31", "2023-12-31", "9999",
    "9999-12-31", "0001-01-01", "2024-02-30", "soon",
]  # fmt: skip
NUMBERS = [0, -0.0, 1, 1.0, 3, 3.5, -2, 2**53, 2**53 + 1, 10**30, float("inf"), 1e-9]
SCALARS: list[MetadataScalar] = [*TEXTS, *NUMBERS, True, False]
FREE = [
    "tags", "a", "a.b", 'say "x"', "it's", "a\x1fs:b", "[]", "ünï", "F" * 300, "created", "never",
]  # fmt: skip
FIELDS = [*FREE, "modified", "title", "path", "source_doc_id", "dataset", "file_type", "modality",
          "page", "section"]  # fmt: skip
PATHS = [f"{index:02}.md" for index in range(40)]
SECTIONS = ["Intro", "A.b", 'The "end"', LONG]
MODALITIES = ["text", "ocr", "video_frame"]


@dataclass(frozen=True)
class Passage:
    """A stored chunk and every value it has."""

    seq: int
    fields: dict[str, tuple[MetadataScalar, ...]]

    def values(self, field: str) -> tuple[MetadataScalar, ...]:
        return self.fields.get(field, ())


def fill(desk: Bench) -> list[Passage]:
    """Forty documents with every kind of metadata, the same in every run."""
    luck, dating = random.Random(20), random.Random(21)
    passages: list[Passage] = []
    for path in PATHS:
        metadata: dict[str, MetadataValue] = {}
        for field in FREE[:-1]:
            if luck.random() < 0.6:
                many = tuple(luck.sample(SCALARS, luck.randint(0, 4)))
                metadata[field] = many if luck.random() < 0.5 else luck.choice(SCALARS)
        metadata["modified"] = tuple(dating.sample(DATES, dating.randint(0, 2)))
        metadata |= {"section": "of the document", "modality": "ocr", "page": 3}  # shadowed
        if path == PATHS[0]:
            metadata["tags"] = ("z\0z", float("inf"), "a", 3)
        sections = tuple(luck.sample(SECTIONS, luck.randint(0, 2)))
        modality, title = luck.choice(MODALITIES), luck.choice(TEXTS[:-1])
        page, breaks = (
            luck.choice([None, 0, 1, 3, 7]),
            luck.choice([(), (), (5,), (5, 5), (1, 2, 9)]),
        )
        (seq,) = desk.put(
            path,
            vector(1, luck.random()),
            metadata=metadata,
            sections=sections,
            modality=modality,
            page=page,
            page_breaks=breaks,
            title=title,
        )
        fields = {name: one if isinstance(one, tuple) else (one,) for name, one in metadata.items()}
        fields |= {
            "title": (title,),
            "path": (path,),
            "source_doc_id": (f"{DATASET}:{path}",),
            "dataset": (DATASET,),
            "file_type": ("md",),
            "modality": (modality,),
            "page": () if page is None else tuple(range(page, page + len(breaks) + 1)),
            "section": sections,
        }
        passages.append(Passage(seq, fields))
    return passages


Answer = Callable[[Filter, Scope], set[int]]


class Reading(NamedTuple):
    """Who answers, and about what."""

    passages: list[Passage]
    answer: Answer

    def __repr__(self) -> str:
        return "Reading()"


def by_sql(desk: Bench) -> Answer:
    def answer(tree: Filter, scope: Scope) -> set[int]:
        with desk.database.read() as connection:
            seqs = allowed_seqs(connection, Restriction(DATASET, scope, tree))
        assert seqs is not None
        return set(seqs.tolist())

    return answer


def by_search(desk: Bench) -> Answer:
    engine = desk.engine()

    def answer(tree: Filter, scope: Scope) -> set[int]:
        hits = desk.search(engine, vector(1), len(PATHS), Restriction(DATASET, scope, tree))
        return {hit.seq for hit in hits}

    return answer


READINGS = {
    "sql": ("flat", by_sql),
    "flat": ("flat", by_search),
    "postgres": ("flat-postgres", by_sql),
    "sqlite-vec": ("sqlite-vec", by_search),
    "qdrant-edge": ("qdrant-edge", by_search),
    "qdrant-memory": ("qdrant-memory", by_search),
}
# A search checks what it finds against SQL: each value is put to those that read it themselves.
READ_THEMSELVES = [name for name, (_, way) in READINGS.items() if way is not by_search]


@pytest.fixture(scope="module", params=READINGS)
def reading(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reading]:
    kind, way = READINGS[request.param]
    with bench(tmp_path_factory.mktemp("filters"), kind) as desk:
        passages = fill(desk)
        yield Reading(passages, way(desk))


def operand(field: str) -> st.SearchStrategy[MetadataScalar]:
    own = {
        "path": PATHS[:5],
        "source_doc_id": [f"{DATASET}:{path}" for path in PATHS[:5]],
        "dataset": [DATASET, "other"],
        "modality": MODALITIES,
        "section": [*SECTIONS, "of the document"],
        "page": [0, 1, 3, 3.0, 2.5, 4, 5, 9],
        "file_type": ["md"],
        "modified": DATES,
        "created": DATES,
    }
    general = st.sampled_from(SCALARS)
    return st.one_of(st.sampled_from(own[field]), general) if field in own else general


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    field = draw(st.sampled_from(FIELDS))
    op = draw(st.sampled_from(list(Op)))
    if op is Op.IS_EMPTY:
        return Condition(field, op, None)
    if op in (Op.IN, Op.NIN, Op.ANY, Op.ALL):
        return Condition(field, op, tuple(draw(st.lists(operand(field), max_size=4))))
    if op in (Op.TEXT_MATCH, Op.TEXT_MATCH_INSENSITIVE):
        return Condition(field, op, draw(st.sampled_from([*TEXTS, "not", ".m", "INTRO"])))
    return Condition(field, op, draw(operand(field)))


filters: st.SearchStrategy[Filter] = st.recursive(
    conditions(),
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=6,
)
scopes = st.one_of(
    st.just(Scope.of(None)),
    st.lists(st.sampled_from([f"{DATASET}:{path}" for path in PATHS])).map(Scope.of),
)

thorough = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def expected(passages: list[Passage], tree: Filter, scope: Scope) -> set[int]:
    return {
        passage.seq
        for passage in passages
        if matches(tree, passage.values) and scope.allows(str(passage.values("source_doc_id")[0]))
    }


@pytest.mark.slow
@thorough
@given(tree=filters, scope=scopes)
def test_every_reading_answers_what_the_plain_one_says(reading, tree: Filter, scope: Scope):
    passages, answer = reading
    assert answer(tree, scope) == expected(passages, tree, scope)


@pytest.mark.parametrize("reading", READ_THEMSELVES, indirect=True, scope="module")
@pytest.mark.parametrize("op", [op for op in Op if op is not Op.IS_EMPTY])
@pytest.mark.parametrize("field", ["tags", "page"])
def test_every_operator_agrees_on_every_value(reading, op: Op, field: str):
    passages, answer = reading
    for value in SCALARS:
        if op in (Op.TEXT_MATCH, Op.TEXT_MATCH_INSENSITIVE) and not isinstance(value, str):
            continue
        operand = (value,) if op in (Op.IN, Op.NIN, Op.ANY, Op.ALL) else value
        tree = Condition(field, op, operand)
        assert answer(tree, Scope.of(None)) == expected(passages, tree, Scope.of(None)), tree


@pytest.mark.parametrize("reading", READ_THEMSELVES, indirect=True, scope="module")
@pytest.mark.parametrize("op", [Op.GT, Op.GTE, Op.LT, Op.LTE, Op.EQ])
def test_every_reading_compares_dates_alike(reading, op: Op):
    passages, answer = reading
    for value in DATES:
        tree = Condition("modified", op, value)
        assert answer(tree, Scope.of(None)) == expected(passages, tree, Scope.of(None)), tree


def test_empty_lists_and_empty_connectives(reading):
    passages, answer = reading
    everyone = {passage.seq for passage in passages}

    def of(tree: Filter) -> set[int]:
        return answer(tree, Scope.of(None))

    for field in ("tags", "path", "page", "section", "dataset"):
        assert of(Condition(field, Op.IN, ())) == set()
        assert of(Condition(field, Op.ANY, ())) == set()
        assert of(Condition(field, Op.NIN, ())) == everyone
        assert of(Condition(field, Op.ALL, ())) == everyone
    assert of(And(())) == everyone
    assert of(Or(())) == set()
    assert of(Not(And(()))) == set()


@pytest.mark.parametrize("reading", READ_THEMSELVES, indirect=True, scope="module")
@pytest.mark.parametrize("field", FIELDS)
def test_presence_and_every_value_that_occurs(reading, field: str):
    passages, answer = reading
    asked: list[Filter] = [Condition(field, Op.IS_EMPTY, None)]
    values = {(type(v), v): v for passage in passages for v in passage.values(field)}
    asked += [Condition(field, Op.EQ, value) for value in [*values.values(), "of the document"]]
    for tree in asked:
        assert answer(tree, Scope.of(None)) == expected(passages, tree, Scope.of(None)), tree


@pytest.mark.parametrize("kind", ["flat", "sqlite-vec", "qdrant-edge", "qdrant-memory"])
def test_a_passage_is_on_every_page_from_its_first_to_its_last(kind: str, tmp_path: Path):
    with bench(tmp_path, kind) as desk:
        desk.put("5 to 7.pdf", vector(1), page=5, page_breaks=(9, 9))  # page 6 has no text
        desk.put("7.pdf", vector(1), page=7)
        desk.put("none.md", vector(1))
        readings = [by_sql(desk), by_search(desk)]

        def found(asked: object) -> str:
            tree = parse_filters(asked)
            assert tree is not None
            answers = [answer(tree, Scope.of(None)) for answer in readings]
            assert all(answer == answers[0] for answer in answers)
            return ", ".join(sorted(paths_of(desk.database, list(answers[0]))))

        assert found("page=5") == found("page=6") == found("page<7") == "5 to 7.pdf"
        assert found("page=7") == found("page>=7") == found("page>6") == "5 to 7.pdf, 7.pdf"
        assert found("page=8") == found("page>7") == found("page<5") == found("page=5.5") == ""
        assert found("page!=5") == "7.pdf, none.md"
        assert found("page!=7") == "none.md"
        assert found({"page": [4, 6]}) == "5 to 7.pdf"
        assert found({"page": {"nin": [4, 6]}}) == "7.pdf, none.md"
        assert found({"page": {"all": [5, 7]}}) == "5 to 7.pdf"
        assert found(["page>=6", "page<=6"]) == "5 to 7.pdf"
        assert found(["page>6", "page<6"]) == "5 to 7.pdf"  # one page for each condition
        assert found(Not(Condition("page", Op.LT, 7))) == "7.pdf, none.md"
        assert found({"page": {"is_empty": None}}) == "none.md"


def test_the_texts_of_a_field_with_a_part_are_listed_once(tmp_path: Path):
    with bench(tmp_path, "flat") as desk:
        told: dict[str, MetadataValue] = {"tags": ("Straße", "Weg", "STRASSE"), "year": 2020}
        for path in ("a.md", "b.md"):
            desk.put(path, vector(1), metadata=told, sections=("Straßen",), modality="ocr")
        with desk.database.read() as connection:
            listed = {
                field: sorted(text_values(connection, DATASET, field, part))
                for field, part in (("tags", "ASSE"), ("section", "strass"), ("modality", "O"))
            }
            assert text_values(connection, DATASET, "year", "2") == []
            assert text_values(connection, "other", "tags", "e") == []
    assert listed == {"tags": ["STRASSE", "Straße"], "section": ["Straßen"], "modality": ["ocr"]}


def test_a_field_that_no_passage_has(reading):
    passages, answer = reading
    everyone = {passage.seq for passage in passages}
    assert answer(Condition("never", Op.EQ, "a"), Scope.of(None)) == set()
    assert answer(Condition("never", Op.NE, "a"), Scope.of(None)) == everyone
    assert answer(Condition("never", Op.IS_EMPTY, None), Scope.of(None)) == everyone
    assert answer(Condition("never", Op.LT, 5), Scope.of(None)) == set()


@pytest.mark.slow
def test_lists_of_thousands_of_values(reading):
    passages, answer = reading
    many = parse_filters({"path": [*PATHS[:3], *(f"{index}.txt" for index in range(5000))]})
    assert many is not None
    assert answer(many, Scope.of(None)) == {passage.seq for passage in passages[:3]}
    for odd, common in ((float("inf"), range(5000, 9000)), ("z\0z", map(str, range(50, 4000)))):
        tree = Condition("tags", Op.IN, (*common, odd))
        wanted = expected(passages, tree, Scope.of(None))
        assert passages[0].seq in wanted
        assert answer(tree, Scope.of(None)) == wanted


@pytest.mark.slow
def test_a_filter_of_the_most_conditions_allowed(reading):
    passages, answer = reading
    wide = parse_filters([f"path!={index}.txt" for index in range(500)])
    deep: Filter = Condition("path", Op.EQ, PATHS[0])
    for _ in range(48):
        deep = Not(deep)
    assert wide is not None
    assert len(answer(wide, Scope.of(None))) == len(passages)
    assert parse_filters(deep) == deep
    assert answer(deep, Scope.of(None)) == {passages[0].seq}
