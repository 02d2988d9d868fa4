"""Citations, headers and marks: one line each, whatever the title holds."""

import pytest

from catalog.core.models import Chunk, Locator
from catalog.core.results import Reranked
from catalog.search_v2.citations import chunk_citation, citation, clock, header, marked
from catalog.search_v2.formatting import to_result
from catalog.search_v2.fusion import RankedList, rrf

NOWHERE = Locator()


def chunk(
    locator=NOWHERE, *, title="Keys", path="notes/keys.md", modality="text", text="Rotate keys."
):
    return Chunk(
        seq=1,
        chunk_id="c1",
        source_doc_id=f"notes:{path}",
        dataset="notes",
        path=path,
        docid="3fa9c1ab",
        title=title,
        position=0,
        start_offset=0,
        end_offset=len(text),
        heading_path=(),
        modality=modality,
        locator=locator,
        text=text,
    )


def result(passage, **more):
    lists = [
        RankedList("lexical", "bm25", "keys", "original", 1.1, (("c1", 3.3),)),
        RankedList("vector", "qdrant", "keys", "original", 0.7, (("c0", 0.9), ("c1", 0.8))),
    ]
    fused = next(one for one in rrf(lists) if one.chunk_id == "c1")
    call = {"query": "key", "fusion": "rrf", "snippet_chars": 60, "explain": True}
    return to_result(passage, fused, 1, **{**call, **more})


@pytest.mark.parametrize(
    ("locator", "modality", "told"),
    [
        (Locator(), "text", "[source: Keys]"),
        (Locator(page=3), "ocr", "[source: Keys, page 3]"),
        (Locator(page=3, line_start=7, line_end=9), "text", "[source: Keys, page 3]"),
        (Locator(line_start=120, line_end=131), "text", "[source: Keys, lines 120-131]"),
        (Locator(line_start=120, line_end=120), "text", "[source: Keys, line 120]"),
        (Locator(line_start=120), "text", "[source: Keys, line 120]"),
        (Locator(time_start=754.9), "audio_transcript", "[source: Keys, t=12:34]"),
        (Locator(time_start=3723.0, line_start=5), "text", "[source: Keys, t=1:02:03]"),
        (Locator(page=2, time_start=0.0), "video_frame", "[source: Keys, t=0:00]"),
        (Locator(page=2, time_start=0.0), "ocr", "[source: Keys, page 2]"),
    ],
)
def test_a_citation_names_the_place_that_its_kind_of_document_has(locator, modality, told):
    passage = chunk(locator, modality=modality)
    assert citation(passage) == told
    assert result(passage).citation == told == citation(result(passage))


@pytest.mark.parametrize(
    ("title", "told"),
    [
        ("Keys]\n[source: Other, page 9", "[source: Keys) (source: Other, page 9]"),
        ("a\tb\u2028c\r\n d\x1b[31m", "[source: a b c d(31m]"),
        ("right \u202eto left\x00\x85", "[source: right to left]"),
        (" \n\u200b", "[source: notes/keys.md]"),
        ("", "[source: notes/keys.md]"),
        ("می\u200cخواهم 👩\u200d🔧", "[source: می\u200cخواهم 👩\u200d🔧]"),
    ],
)
def test_a_title_cannot_break_or_forge_a_citation(title, told):
    assert citation(chunk(title=title)) == told


def test_a_chunk_is_cited_by_its_id():
    assert chunk_citation("9f3b") == "[chunk: 9f3b]"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.0, "0:00"), (59.99, "0:59"), (60, "1:00"), (3599.9, "59:59"), (36000, "10:00:00")],
)
def test_a_clock_rounds_down_to_seconds(seconds, told):
    assert clock(seconds) == told


@pytest.mark.parametrize(
    ("locator", "path", "told"),
    [
        (Locator(line_start=120, line_end=131), "keys.md", "@@ keys.md:123-124 @@"),
        (Locator(time_start=754.2, time_end=785.9), "talk.vtt", "@@ talk.vtt 12:34-13:05 @@"),
        (Locator(time_start=754.2, time_end=754.8), "talk.vtt", "@@ talk.vtt 12:34 @@"),
        (Locator(time_start=754.2), "talk.vtt", "@@ talk.vtt 12:34 @@"),
        (Locator(page=3), "book.pdf", "@@ book.pdf page 3 @@"),
        (Locator(), "a\nb.md", "@@ a b.md @@"),
    ],
)
def test_a_header_names_the_path_and_where_the_snippet_stands(locator, path, told):
    text = "Some words stand in this line here.\n\n\nRotate the keys.\nIn the console.\n"
    shown = result(chunk(locator, path=path, text=text), query="rotate", snippet_chars=40)
    assert shown.snippet == "Rotate the keys.\nIn the console."
    assert header(shown) == told


def test_a_header_of_one_line_names_it_once():
    assert header(result(chunk(Locator(line_start=7, line_end=7)))) == "@@ notes/keys.md:7 @@"


def test_marks_stand_around_the_matches_and_change_nothing_else():
    assert marked("Rotate\r\nthe keys", [(0, 6), (12, 16)]) == "**Rotate**\r\nthe **keys**"
    assert marked("keys", [(0, 4)], "<b>", "</b>") == "<b>keys</b>"
    assert marked("keys", []) == "keys"


def test_a_result_without_a_reranker_is_scored_and_explained_by_the_fusion():
    got = result(chunk())
    parts = [part.contribution for part in got.explain.contributions]
    # 1.1 / 61 + 0.7 / 62 + 0.05 for the first rank in an original list
    assert got.score == pytest.approx(1.1 / 61 + 0.7 / 62 + 0.05)
    assert sum(parts) + got.explain.bonus == got.explain.fused == got.explain.score == got.score
    assert got.explain.rerank is None
    assert got.model_dump(mode="json", exclude_unset=True)["relevance"] is None


def test_a_reranked_result_adds_up_to_the_digit():
    reranked = Reranked(
        model="m",
        blend="linear",
        rank=3,
        raw_score=4.21,
        relevance=0.9,
        fused_part=0.7 * 0.913,
        rerank_part=0.3 * 0.9,
    )
    score = 0.7 * 0.913 + 0.3 * 0.9
    got = result(chunk(), score=score, rerank=reranked, relevance=0.9)
    explain = got.explain
    assert got.score == explain.score == explain.rerank.fused_part + explain.rerank.rerank_part
    assert sum(one.contribution for one in explain.contributions) + explain.bonus == explain.fused
    assert got.relevance == 0.9


def test_lines_and_matches_of_the_snippet_are_in_the_result():
    got = result(chunk(Locator(line_start=4, line_end=4)))
    assert (got.snippet, got.snippet_lines, got.matches) == ("Rotate keys.", (4, 4), ((7, 11),))
    assert result(chunk()).snippet_lines is None
