"""Which step lost a document, which change brings it back, and which stage makes a difference."""

import json
import tomllib
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode

from catalog.core.errors import BackendError, InputError
from catalog.core.params import SearchParams
from catalog.core.settings import AnswerSettings
from catalog.evaluation import shares
from catalog.evaluation.golden import GoldenQuery, Span
from catalog.evaluation.losses import golden_loss_lines, loss_lines
from catalog.evaluation.measurement import Measurement
from catalog.evaluation.observed import explain_pipeline
from catalog.evaluation.report import render_report
from catalog.evaluation.summary import comparison_dict, comparison_lines
from catalog.evaluation.why import explain_golden, explain_loss
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.retrieval.search import Searcher
from evaluation.stubs import golden
from fakes import WordEncoder, open_library
from tables import table

TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TOPICS, THINGS = TABLES["topics"], TABLES["things"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A hundred notes about ten places, and a few more; no test changes them."""
    folder = tmp_path_factory.mktemp("notes")
    for topic in TOPICS:
        for number, thing in enumerate(THINGS):
            text = f"# {topic} {thing}\n\nThe {thing} of the {topic} are in folder {number}.\n"
            (folder / f"{topic}-{thing}.md").write_text(text)
    for name, text in TABLES["notes"].items():
        (folder / name).write_text(text)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    small = {"chunk_size": 48, "chunk_overlap": 0, "chunk_min_size": 16}
    with open_library(tmp_path_factory.mktemp("home"), WordEncoder(), **small) as opened:
        Indexer(opened).build(folder, "notes")
        (folder / "late.md").write_text("A note about ferries, written after the run.\n")
        yield opened


def question(name, text, **grades):
    labels = [{"path": path, "grade": it} for path, it in grades.items()]
    return GoldenQuery.model_validate({"id": name, "query": text, "expected": labels})


@pytest.fixture
def service(library):
    return Searcher(library)


@table("query, doc, params, settings, text, step, change", inner=list)
def test_names_the_step_that_lost_a_document(
    service, query, doc, params, settings, text, step, change
):
    parts = service.parts.with_settings(settings)
    span = Span(text=text) if text else None
    asked = SearchParams(query, dataset="notes", **params)
    loss = explain_loss(parts, asked, doc, span)
    assert (loss.step or "", loss.change.text if loss.change else "") == (step, change)
    assert (loss.rank is None) == bool(step)
    assert next(loss_lines(loss)).startswith(doc)
    if loss.change and loss.change.rank is not None:
        better = replace(asked, **loss.change.params)
        again = explain_loss(parts.with_settings(loss.change.settings), better, doc, span)
        assert (again.step, again.rank) == (None, loss.change.rank)


@table("query, step, line")
def test_a_missing_synonym_is_found_by_trying_and_its_line_brings_the_document_back(
    service, query, step, line
):
    asked = SearchParams(query, dataset="notes", top_k=3)
    loss = explain_loss(service.parts, asked, "leave.md")
    assert (loss.step, loss.change.synonym) == (step, line)
    assert f"Smallest change: the line {line!r} in synonyms.txt" in "".join(loss_lines(loss))
    file = service.parts.settings.home / "synonyms.txt"
    try:
        file.write_text(f"{loss.change.synonym}\n")
        assert explain_loss(service.parts, asked, "leave.md").rank == loss.change.rank
    finally:
        file.unlink()
    assert explain_loss(service.parts, asked, "leave.md").rank is None


def test_a_hidden_document_is_told_like_one_that_does_not_exist(tmp_path):
    (tmp_path / "notes").mkdir()
    for name, level in (("open.md", "public"), ("secret.md", "secret")):
        text = f"---\nconfidentiality: {level}\n---\nThe ferry leaves at ten.\n"
        (tmp_path / "notes" / name).write_text(text)
    with open_library(tmp_path / "home", WordEncoder()) as library:
        Indexer(library).build(tmp_path / "notes", "notes")
        answers = AnswerSettings(roles=("guest: public",))
        library.settings = library.settings.model_copy(update={"answers": answers})
        parts, asked = Searcher(library).parts, SearchParams("ferry", dataset="notes", role="guest")
        hidden = explain_loss(parts, asked, "secret.md")
        unknown = explain_loss(parts, asked, "nobody.md")
    assert (hidden.step, hidden.ranks, hidden.change) == ("index", (), None)
    assert hidden.reason.replace("secret.md", "nobody.md") == unknown.reason


def test_the_shares_of_the_steps_and_what_was_found_add_up_to_all(service):
    asked = golden(
        question("a", "ferry timetable", **{"ferry.md": 1, "late.md": 1}),
        question("b", "lamps", **{"pier.md": 1, "museum-keys.md": 1, "bakery-doors.md": 2}),
    )
    found = explain_golden(service.parts, SearchParams("", dataset="notes"), asked, Silent())
    assert found.found == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert found.found + sum(one.share for one in found.shares) == pytest.approx(1)
    assert {one.step: one.documents for one in found.shares} == {"index": 1, "top_k": 2}
    assert (found.documents, len(found.losses)) == (5, 3)
    lines = list(golden_loss_lines(found))
    assert lines[0].startswith("5 relevant documents of 2 queries: 41.7% found")
    assert len(lines) == 1 + 2 + 3


@pytest.mark.slow
def test_a_comparison_says_why_the_questions_that_lost_most_did(library):
    asked = golden(
        *(question(it, it, **{f"{topic}-{it}.md": 1 for topic in TOPICS}) for it in THINGS),
        *(question(it, it, **{f"{it}-{thing}.md": 1 for thing in THINGS}) for it in TOPICS[:3]),
    )
    job = Measurement(library, "notes", asked)
    compared = job.compare("v2", "v2:token_budget=1")
    lost = compared.lost
    assert (lost.queries, lost.documents, len(lost.losses)) == (10, 30, 30)
    assert [(one.step, one.documents) for one in lost.shares] == [("token budget", 30)]
    assert {one.change for one in lost.losses} == {None}
    lines = [*comparison_lines(compared)]
    assert lines[-2:] == [
        "Why 10 of 13 questions lost; of 30 documents 0% are in the first ten:",
        "  100%  no room in the token budget",
    ]
    assert comparison_dict(compared)["lost"]["losses"][0]["step"] == "token budget"
    page = render_report(compared, created=datetime(2026, 1, 1))
    assert page.count("<td>no room in the token budget<") == 30
    other = job.compare("v2", lambda _: ["harbour-tickets.md"])
    assert (other.outcome, other.lost) == ("too few to tell", None)
    assert "Why was it lost" in page
    assert "Why was it lost" not in render_report(other, created=datetime(2026, 1, 1))


@pytest.mark.slow
def test_shares_of_stages_add_up_to_the_difference_to_the_digit(service):
    asked = golden(
        *(question(it, f"{it} of the museum", **{f"museum-{it}.md": 1}) for it in THINGS),
        question("pier", "lamps of anglers", **{"pier.md": 2, "ferry.md": 1}),
    )
    setups = [
        shares.SearchSetup(spec, "notes", filters)
        for spec, filters in (
            ("v2:fusion_mode=rrf", None),
            ("lexical:max_chunks_per_doc=1", "path~museum"),
        )
    ]
    told = shares.share_out(service, *setups, asked, Silent())
    by_stage = {one.stage: one.share for one in told.shares}
    assert set(by_stage) == {"fusion", "meaning", "selection", "filters"}
    assert sum(by_stage.values()) == pytest.approx(told.after - told.before, abs=1e-12)
    assert by_stage["filters"] < 0  # it leaves the pier out
    printed = [float(line.split()[0]) for line in list(shares.share_lines(told))[1:]]
    assert round(sum(printed), 4) == round(round(told.after, 4) - round(told.before, 4), 4)
    swapped = shares.share_out(service, *setups[::-1], asked, Silent())
    for one in swapped.shares:
        assert one.share == pytest.approx(-by_stage[one.stage], abs=1e-12)
    only_words, only_meaning = (shares.SearchSetup(it, "notes") for it in ("lexical", "vector"))
    legs = shares.share_out(service, only_words, only_meaning, asked, Silent())
    assert [one.stage for one in legs.shares if one.share > 0] == ["meaning"]


def test_shapley_shares_by_hand():
    worth = {"": 0.0, "a": 1.0, "b": 2.0, "c": 0.0, "ab": 6.0, "ac": 1.0, "bc": 2.0, "abc": 9.0}
    by = shares.shapley("abc", lambda who: np.array(worth["".join(sorted(who))]))
    assert {name: float(it) for name, it in by.items()} == pytest.approx(
        {"a": 3.5, "b": 4.5, "c": 1}
    )


@table("first, second, message")
def test_refuses_shares_of_searches_without_stages(service, first, second, message):
    setups = (shares.SearchSetup(spec, "notes") for spec in (first, second))
    with pytest.raises(InputError, match=message):
        shares.share_out(service, *setups, golden(question("a", "q", **{"x.md": 1})), Silent())


class _Fixed(BaseRetriever):
    def __init__(self, *names):
        self.nodes = [
            NodeWithScore(node=TextNode(text=name, metadata={"path": name}), score=1 / at)
            for at, name in enumerate(names, 1)
        ]
        super().__init__()

    def _retrieve(self, _):
        return list(self.nodes)


class _Both(BaseRetriever):
    def __init__(self, *parts):
        self.parts = parts
        super().__init__()

    def _retrieve(self, query):
        return [node for part in self.parts for node in part.retrieve(query)][:3]


class _Two(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        del query_bundle
        return nodes[:2]


def test_names_the_part_of_a_llamaindex_pipeline_and_leaves_it_unchanged(library):
    fusion = _Both(_Fixed("a.md", "b.md"), _Fixed("./ferry.md", "pier.md"))
    engine = RetrieverQueryEngine.from_args(fusion, llm=MockLLM(), node_postprocessors=[_Two()])
    handlers = list(get_dispatcher().span_handlers)
    by_part = {
        name: explain_pipeline(library.database, "notes", engine, "lamps", name)
        for name in ("a.md", "ferry.md", "pier.md", "museum-keys.md")
    }
    assert {name: one.step for name, one in by_part.items()} == {
        "a.md": None,
        "ferry.md": "_Two",
        "pier.md": "_Both",
        "museum-keys.md": "index",
    }
    assert [(one.step, one.rank) for one in by_part["ferry.md"].ranks[:4]] == [
        ("_Fixed", None),
        ("_Fixed", 1),
        ("_Both", 3),
        ("_Two", None),
    ]
    assert get_dispatcher().span_handlers == handlers


def test_says_of_a_plain_function_what_its_lists_allow(library):
    names = [f"{topic}-{thing}.md" for topic in TOPICS for thing in THINGS]

    def search(query, top_k=10):
        own = [name for name in names if name.partition("-")[0] in query.split()[:1]]
        return [*own, *names[:40]][:top_k]

    def explain(doc):
        return explain_pipeline(library.database, "notes", search, "lamps", doc)

    assert explain("harbour-rules.md").rank == 4
    deeper = explain("kitchen-rules.md")
    assert (deeper.step, deeper.change.text) == ("top_k", "top_k=24")
    assert (explain("school-rules.md").step, explain("pier.md").step) == ("retrieval", "index")
    assert explain("pire.md").reason.endswith(
        "In 'notes': no document 'pire.md'; did you mean notes:pier.md?"
    )
    with pytest.raises(BackendError, match="KeyError"):
        explain_pipeline(library.database, "notes", lambda _: {}["x"], "lamps", "pier.md")


def test_why_on_the_command_line(command, notes):
    command("index", "build", notes, "--dataset", "notes")
    _, out, _ = command("why", "ninety days", "--doc", "bread.txt", "-k", "1", "--json")
    told = json.loads(out)
    assert (told["document"], told["change"]["rank"]) == ("bread.txt", 1)
    assert "keys.md is result 1" in command("why", "ninety days", "--doc", "keys.md")[1]
    sought = ("ninety days", "--doc", "keys.md")
    for wrong in (
        *(
            ("ninety days",),
            (),
            ("ninety days", "--doc", ""),
            ("--doc", "keys.md"),
            (*sought, "--baseline", "lexical"),
        ),
        *((*sought, "--candidate", "v2"), (*sought, "--pipeline", "app:x", "--mode", "lexical")),
        *(("--golden", "q", "--text", "days"), ("--golden", "q", "--candidate", "v2", "-k", "3")),
    ):
        assert command("why", *wrong)[0] == 2, wrong
