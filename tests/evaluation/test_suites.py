"""Suites are read whole or refused with every fault named, and put to a real store."""

import pytest

from catalog.core.errors import EngineError, GoldenSetError
from catalog.core.results import SearchResults, StageReport
from catalog.evaluation.suite_verdict import Validation
from catalog.evaluation.suites import DEPTHS, SuiteQuery, ValidationSuite, read_suite, run_suite
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import WordEncoder, open_library, write
from tables import read_cases, table

GOOD = read_cases(__file__)["good"]


@pytest.fixture
def read(tmp_path):
    """Reads a suite of this text."""

    def read_text(text):
        path = tmp_path / "suite.toml"
        path.write_text(text, encoding="utf-8")
        return read_suite(path)

    return read_text


def query(**fields):
    given = {"id": '"one"', "kind": '"general"', "query": '"keys"', "expected": '["path=a.md"]'}
    lines = (f"{name} = {value}" for name, value in (given | fields).items() if value)
    return "\n".join(("[[query]]", *lines, ""))


def test_a_suite_has_its_questions_sources_and_usual_limits(read):
    suite = read(GOOD)
    assert (suite.name, suite.repeats, suite.top_k, suite.score) == ("keys", 3, None, "relevance")
    assert (suite.limits.queries, suite.limits.stable) == (0.9, 1.0)
    assert suite.query[0].expected == ({"path": "keys.md"}, "section~Rotating")
    assert read(query()).name == "suite"


@table("text, queries, reason")
def test_a_suite_that_cannot_be_held_to_is_refused_with_every_reason(read, text, queries, reason):
    with pytest.raises(GoldenSetError) as refused:
        read(text + "".join(query(**one) for one in queries))
    assert reason in str(refused.value)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path):
    with pytest.raises(GoldenSetError, match="cannot read"):
        read_suite(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GoldenSetError, match="not UTF-8"):
        read_suite(tmp_path / "bytes.toml")


PAGE = "---\nsource_url: https://e.org/{0}\npage_title: Page of {0}\n---\n# The {0}\n\n{1}\n"


class ChangingService(SearchServiceV2):
    """Answers as v2 does, and lets ``change`` have each answer before it is given."""

    def __init__(self, library, parts=None, change=lambda results, number: results):
        super().__init__(library, parts)
        self.change, self.asked = change, []

    def with_settings(self, changes):
        other = ChangingService(self.library, self.parts.with_settings(changes), self.change)
        other.asked = self.asked
        return other

    def search(self, *arguments, **options):
        results = super().search(*arguments, **options)
        self.asked.append(options["top_k"])
        return self.change(results, len(self.asked))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    write(
        folder / "book",
        heron_dot_md=PAGE.format("heron", "A heron stands in shallow water and waits for fish."),
        otter_dot_md=PAGE.format("otter", "An otter swims under water and hunts fish at night."),
        yak_dot_md=PAGE.format("yak", "A yak carries loads over high mountain passes."),
        bare_dot_txt="A badger digs tunnels under the hill.\n",
    )
    encoder = WordEncoder()
    with open_library(folder / "home", encoder) as opened:
        Indexer(opened).build(folder / "book", "book")
        opened.encoder = encoder
        yield opened


def question(**fields):
    given = {"id": "heron", "kind": "general", "query": "heron", "expected": ["path=heron.md"]}
    return SuiteQuery.model_validate(given | fields)


def suite(*queries, **fields):
    given = {"score": "cosine", "threshold": 0.2, "repeats": 2, "top_k": 2}
    return ValidationSuite(name="birds", query=queries or (question(),), **given | fields)


def measure(library, suite, change=lambda results, number: results):
    return run_suite(ChangingService(library, change=change), suite, "book")


def altered(results, hits=None, stages=None):
    return SearchResults(
        results.results if hits is None else hits,
        query=results.query,
        datasets=results.datasets,
        mode=results.mode,
        stages=results.stages if stages is None else stages,
        elapsed_ms=results.elapsed_ms,
        confidence=results.confidence,
        low_confidence=results.low_confidence,
    )


def unchanged(results, _):
    return results


def patterns(library, change, *queries, **fields):
    validation = Validation(measure(library, suite(*queries, **fields), change))
    return next(iter(validation.patterns.values()))


def test_a_run_tells_which_passages_are_right_and_how_many_there_are(library):
    forms = [{"source_url": "https://e.org/heron"}, "page_title=Page of heron", "section~the heron"]
    (one,) = measure(library, suite(question(expected=forms))).measurements
    first, second = one.passages
    assert (first.path, first.sources, first.is_right) == ("heron.md", {0, 1, 2}, True)
    assert (second.is_right, one.available, one.absent) == (False, 1, ())
    assert (one.recall(one.passages), one.precision(one.passages)) == (1.0, 0.5)
    assert set(one.by_depth) == set(DEPTHS)
    assert len(one.by_depth[1][0]) == 1


def test_every_repetition_embeds_the_question_anew_and_searches_again_without(library):
    library.encoder.texts.clear()
    (one,) = measure(library, suite(repeats=3)).measurements
    assert len(one.embedding_ms) == len(one.search_ms) == len(one.whole_ms) == 3
    assert all(ms > 0 for ms in (*one.embedding_ms, *one.search_ms))
    # the warm-up, each repetition, the one without a threshold, and thrice a batch and the cache
    assert len(library.encoder.texts) == 1 + 3 + 1 + 3 + 1


def test_a_lexical_suite_embeds_nothing_and_needs_no_time_for_it(library):
    run = measure(library, suite(mode="lexical", score="relevance"))
    assert run.embedding == {}
    (embedding,) = (one for one in Validation(run).criteria if one.id == "SC-003")
    assert (embedding.value, embedding.holds) == (None, True)


def test_an_answer_that_is_not_the_same_each_time_is_seen(library):
    def swap(results, number):
        return altered(results, results.results[::-1]) if number == 3 else results

    assert not measure(library, suite(), swap).measurements[0].is_stable
    assert measure(library, suite()).measurements[0].is_stable


def test_a_search_that_finds_nothing_or_other_passages_is_told_apart(library):
    def without_herons(results, _):
        return altered(results, [hit for hit in results if hit.path != "heron.md"])

    assert patterns(library, lambda results, _: altered(results, ())) == ("empty",)
    assert patterns(library, without_herons) == ("irrelevant",)


@pytest.mark.slow
def test_a_threshold_divides_right_passages_and_foreign_questions(library):
    found = measure(library, suite()).measurements[0].passages[0].cosine
    assert patterns(library, unchanged, threshold=found) == ()
    assert patterns(library, unchanged, threshold=found + 0.01) == ("low confidence",)
    foreign = question(id="none", kind="non-existent", query="heron", expected=[])
    assert patterns(library, unchanged, foreign) == ("unwarranted",)
    quiet = question(id="none", kind="non-existent", query="heron", expected=[], threshold=1.0)
    assert patterns(library, lambda results, _: altered(results, results[1:]), quiet) == ()


@pytest.mark.slow
def test_a_passage_that_the_filters_forbid_is_seen(library):
    filtered = question(kind="filtered", filters=["path=heron.md|yak.md"])
    otter = measure(library, suite(question(query="otter", expected=["path=otter.md"])))
    forbidden = {"chunk_id": otter.measurements[0].passages[0].chunk_id}

    def leak(results, _):
        others = [result.model_copy(update=forbidden) for result in results[1:]]
        return altered(results, [*results[:1], *others])

    assert patterns(library, unchanged, filtered) == ()
    assert patterns(library, leak, filtered) == ("outside filters",)


def test_an_expected_source_that_is_not_indexed_is_absent(library):
    run = measure(library, suite(question(expected=["path=heron.md", "path=lost.md"])))
    assert run.measurements[0].absent == (1,)
    assert Validation(run).patterns["heron"] == ("absent",)


def test_a_stage_that_fails_and_a_search_that_raises_fail_their_question_alone(library):
    def fail_stage(results, _):
        report = StageReport(name="vector", status="failed", ms=1.0, note="EngineError: away")
        return altered(results, stages=[report])

    assert patterns(library, fail_stage) == ("failed",)

    def fail_yaks(results, _):
        if "yak" in results.query:
            raise EngineError("the index is away")
        return results

    yak = question(id="yak", query="yak", expected=["path=yak.md"])
    run = measure(library, suite(question(), yak), fail_yaks)
    assert [one.failures for one in run.measurements] == [(), ("EngineError: the index is away",)]
    assert Validation(run).patterns == {"heron": (), "yak": ("failed",)}


def test_metadata_that_is_missing_or_leads_elsewhere_is_named_passage_by_passage(library):
    badger = question(query="badger", expected=["path=bare.txt"])
    run = measure(library, suite(badger, required_metadata=["source_url", "section"], top_k=1))
    assert run.measurements[0].passages[0].problems == ("no source_url", "no section")
    assert run.incomplete == {"source_url": 1, "section": 1}

    def move(results, _):
        moved = {"start_offset": results[0].start_offset + 1}
        return altered(results, [results[0].model_copy(update=moved)])

    (one,) = measure(library, suite(), move).measurements
    assert one.passages[0].problems == ("its text differs from the stored document at its place",)
    assert measure(library, suite()).measurements[0].passages[0].problems == ()


def test_a_condition_on_a_field_that_no_document_has_is_refused_before_anything_is_asked(library):
    service = ChangingService(library)
    with pytest.raises(GoldenSetError, match="'chapter'"):
        run_suite(service, suite(question(filters=["chapter=3"])), "book")
    assert service.asked == []
