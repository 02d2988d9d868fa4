"""Span recall: the labelled words among the first passages, whatever the size of chunks."""

import pytest

from catalog.core.errors import BlindComparisonError
from catalog.core.user_search import RankedHit
from catalog.evaluation.gates import parse_gate
from catalog.evaluation.golden import GoldenSet, with_words
from catalog.evaluation.metrics import contains_words
from catalog.library.indexing import Indexer
from evaluation.stubs import compared, question
from fakes import open_library
from tables import table

WORDS = "The keys rotate every ninety days, and nobody is told."
PAGE = "".join(f"{n}: {'filler ' * 20}" for n in range(9)) + WORDS  # 9 × 143 + 54 characters


def scores(expected, hits):
    """The span metrics of one query, against a list that has everything."""
    labels = [{"path": path, "grade": 1, "span": span} for path, span in expected]
    found = [
        RankedHit(path, text=text, times=tuple(times[0]) if times else None)
        for path, text, *times in hits
    ]
    query = question(1, expected=labels, kind=None)
    perfect = [RankedHit(path, text=str(span)) for path, span in expected]
    return compared([query], {"q1": perfect}, {"q1": found}).candidate_scores


@table("quote, texts, is_found", inner=list)
def test_a_quote_is_found_in_one_text_or_by_the_parts_of_several(quote, texts, is_found):
    assert contains_words(quote, texts) == is_found


@table("expected, hits, wanted", inner=list)
def test_spans_count_as_found_missing_or_not_measured(expected, hits, wanted):
    of_query = scores(expected, hits).per_query
    told = [of_query[name]["q1"] for name in ("SR@10", "AllSpans@10") if name in of_query]
    assert told == wanted


def test_depth_is_counted_in_passages_or_in_characters():
    cut = [RankedHit("a", text=PAGE[at : at + 200]) for at in range(0, len(PAGE), 200)]
    whole = [RankedHit("b", text="x" * 4_950), RankedHit("a", text=PAGE)]
    for hits, at5, at10, in_text in ((cut, 0, 1, 1), (whole, 1, 1, 0)):
        found = scores([("a", WORDS)], [(hit.path, hit.text) for hit in hits])
        told = [found.per_query[name]["q1"] for name in ("SR@5", "SR@10", "SR@5000c")]
        assert told == [at5, at10, in_text]
    assert found.characters == 4_950 + len(PAGE)


def test_lines_and_characters_get_their_words_from_the_dataset(tmp_path, notes):
    spans = [{"line_start": 1, "line_end": 1}, [4, 9], [900, 950], {"line_start": 7, "line_end": 8}]
    label = {"path": "bread.txt", "grade": 1}
    queries = [
        question(n, expected=[{**label, "span": span}], kind=None) for n, span in enumerate(spans)
    ]
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        told = with_words(GoldenSet("set", tuple(queries)), library.database, "notes")
    words = [query.expected[0].span.text for query in told]
    assert words == [
        "Mix flour, water and yeast. Bake the bread at 230 degrees.",
        "flour",
        None,
        None,
    ]


def test_a_comparison_tests_the_queries_that_both_tell_and_a_gate_never_reads_a_missing_one():
    label = [{"path": "right.md", "grade": 1, "span": "answer"}]
    asked = [question(n, expected=label, kind=None) for n in range(60)]
    right = [RankedHit("right.md", text="the answer")]
    wrong = [RankedHit("right.md", text="another part")]
    mute = [RankedHit("right.md")]
    old = {query.id: right for query in asked}
    new = {f"q{n}": wrong if n < 30 else right if n < 50 else mute for n in range(60)}
    comparison = compared(asked, old, new)
    rows = {row.metric: row for row in comparison.metrics}
    assert rows["nDCG@10"].test.difference == 0
    assert (rows["SR@10"].test.n, rows["SR@10"].test.difference) == (50, pytest.approx(-0.6))
    assert rows["R@10"].adjusted_p == 1  # the metrics of spans are corrected apart
    assert parse_gate("sr@10 worse by 0.3").decide(comparison).failed
    unknown = compared(asked, old, {query.id: mute for query in asked})
    assert "SR@10" not in {row.metric for row in unknown.metrics}
    assert any("new gives no text or times" in one for one in unknown.warnings)
    with pytest.raises(BlindComparisonError, match="not measured; that needs labels with spans"):
        parse_gate("sr@10 worse").decide(unknown)
