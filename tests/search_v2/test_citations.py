"""Citations, headers and marks: one line each, whatever the title holds."""

import pytest

from catalog.core.documents import Chunk, Cue, Locator
from catalog.core.query import ParsedQuery, SubQuery
from catalog.core.results import Reranked, ResultLocator
from catalog.retrieval.citations import (
    format_citation,
    format_clock,
    format_shown_place,
)
from catalog.retrieval.fusion import RankedList, rrf
from catalog.retrieval.shape import to_result
from catalog.retrieval.snippets import Passage

NOWHERE = Locator()


def chunk(
    locator=NOWHERE,
    *,
    title="Keys",
    path="notes/keys.md",
    modality="text",
    text="Rotate keys.",
    **more,
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
        **more,
    )


SPOKEN = "Good morning all.\nRotate the keys.\nIn the console.\nGoodbye then.\n"
CUES = tuple(
    Cue(start, end, *seconds)
    for start, end, seconds in [
        (0, 17, (754.2, 758.0)),
        (18, 34, (758.0, 763.9)),
        (35, 50, (765.0, 770.0)),
        (51, 64, (770.0, 785.9)),
    ]
)


def spoken(**more):
    where = Locator(line_start=7, line_end=10, time_start=754.2, time_end=785.9)
    about = {"path": "talk.vtt", "modality": "video_transcript", "text": SPOKEN, "cues": CUES}
    return chunk(where, **{**about, **more})


def result(passage, reranked=None, **more):
    lists = [
        RankedList("lexical", "bm25", "keys", "original", 1.1, (("c1", 3.3),)),
        RankedList("vector", "qdrant", "keys", "original", 0.7, (("c0", 0.9), ("c1", 0.8))),
    ]
    fused = next(one for one in rrf(lists) if one.key == "c1")
    scored = Passage(passage, fused.score, fused, relevance=0.5, certainty="likely")
    if reranked is not None:
        score = reranked.fused_part + reranked.rerank_part
        scored = scored._replace(score=score, reranked=reranked)
    call = {"query": "key", "fusion": "rrf", "snippet_chars": 60, "explain": True}
    call |= more
    query = ParsedQuery(call["query"], call["query"], (SubQuery("lex", call["query"]),))
    return to_result(scored, 1, **{**call, "query": query})


@pytest.mark.parametrize(
    ("locator", "modality", "told"),
    [
        (Locator(), "text", "[source: Keys]"),
        (Locator(page=3), "ocr", "[source: Keys, page 3]"),
        (Locator(page=3, line_start=7, line_end=9), "text", "[source: Keys, page 3]"),
        (Locator(page=6, page_end=7), "text", "[source: Keys, pages 6-7]"),
        (Locator(page=6, page_end=6), "text", "[source: Keys, page 6]"),
        (Locator(line_start=120, line_end=131), "text", "[source: Keys, lines 120-131]"),
        (Locator(line_start=120, line_end=120), "text", "[source: Keys, line 120]"),
        (Locator(line_start=120), "text", "[source: Keys, line 120]"),
        (Locator(time_start=754.9), "audio_transcript", "[source: Keys, t=12:34]"),
        (Locator(time_start=3723.0, line_start=5), "text", "[source: Keys, t=1:02:03]"),
        (Locator(page=2, time_start=0.0), "video_frame", "[source: Keys, t=0:00]"),
        (Locator(page=2, time_start=0.0), "ocr", "[source: Keys, page 2]"),
        (Locator(page=2, page_end=3, unit="slide"), "text", "[source: Keys, slides 2-3]"),
        (Locator(unit="cell", start=3, end=5), "text", "[source: Keys, cells 3-5]"),
        (
            Locator(None, None, 2, 8, None, None, "cell", 3, 3),
            "text",
            "[source: Keys, cell 3, lines 2-8]",
        ),
        (Locator(unit="paragraph", start=9, end=9), "text", "[source: Keys, paragraph 9]"),
    ],
)
def test_a_citation_names_the_place_that_its_kind_of_document_has(locator, modality, told):
    passage = chunk(locator, modality=modality)
    assert format_citation(passage) == told
    if locator.page_end in (None, locator.page):  # else that of the best sentence comes first
        assert result(passage).citation == told


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
    assert format_citation(chunk(title=title)) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.0, "0:00"), (59.99, "0:59"), (60, "1:00"), (3599.9, "59:59"), (36000, "10:00:00")],
)
def test_a_clock_rounds_down_to_seconds(seconds, told):
    assert format_clock(seconds) == told


@pytest.mark.parametrize(
    ("locator", "path", "told"),
    [
        (Locator(line_start=120, line_end=131), "keys.md", "keys.md:123-124"),
        (Locator(time_start=754.2, time_end=785.9), "talk.vtt", "talk.vtt 12:34-13:05"),
        (Locator(time_start=754.2, time_end=754.8), "talk.vtt", "talk.vtt 12:34"),
        (Locator(time_start=754.2), "talk.vtt", "talk.vtt 12:34"),
        (Locator(page=3), "book.pdf", "book.pdf page 3"),
        (Locator(), "a\nb.md", "a b.md"),
    ],
)
def test_a_header_names_the_path_and_where_the_snippet_stands(locator, path, told):
    text = "Some words stand in this line here.\n\n\nRotate the keys.\nIn the console.\n"
    shown = result(chunk(locator, path=path, text=text), query="rotate", snippet_chars=40)
    assert shown.snippet == "Rotate the keys.\nIn the console."
    assert format_shown_place(shown) == told


@pytest.mark.parametrize(
    ("query", "chars", "snippet", "seconds", "told", "between"),
    [
        ("rotate", 20, "Rotate the keys.", (758.0, 763.9), "12:38", "12:38-12:43"),
        (
            "console",
            40,
            "Rotate the keys.\nIn the console.",
            (758.0, 770.0),
            "12:45",
            "12:38-12:50",
        ),
        ("goodbye", 20, "Goodbye then.", (770.0, 785.9), "12:50", "12:50-13:05"),
        ("rotate", 300, SPOKEN.strip(), (754.2, 785.9), "12:38", "12:34-13:05"),
    ],
)
def test_a_transcript_is_cited_and_linked_at_the_second_of_the_best_sentence(
    query, chars, snippet, seconds, told, between
):
    got = result(spoken(), query=query, snippet_chars=chars)
    assert got.snippet == snippet
    where = got.snippet_locator
    assert (where.time_start, where.time_end) == seconds
    assert (where.line_start, where.line_end) == got.snippet_lines
    assert got.citation == f"[source: Keys, t={told}]"
    assert format_shown_place(got) == f"talk.vtt {between}"
    assert (got.locator.time_start, got.locator.time_end) == (754.2, 785.9)
    minutes, second = told.split(":")
    assert int(got.moment) == 60 * int(minutes) + int(second)
    assert got.link == f"talk.vtt#t={int(got.moment)}"


def test_captions_without_punctuation_are_cited_at_the_caption_that_answers():
    said = ["so today we look", "at keys and how", "you would rotate them", "in the console", "bye"]
    text = "\n".join(said)
    starts = [text.index(one) for one in said]
    cues = tuple(
        Cue(start, start + len(one), 4.0 * n, 4.0 * n + 4.0)
        for n, (start, one) in enumerate(zip(starts, said, strict=True))
    )
    about = {"text": text, "cues": cues}
    assert result(spoken(**about), query="console", snippet_chars=300).moment == 12.0
    # Within ten seconds of where the sentence begins, that is the better place to listen from.
    assert result(spoken(**about), query="rotate", snippet_chars=300).moment == 0.0
    assert result(spoken(**about), query="nothing", snippet_chars=300).moment == 0.0


def test_a_transcript_without_cues_is_cited_at_its_own_seconds():
    got = result(spoken(cues=()), query="rotate", snippet_chars=20)
    assert got.citation == "[source: Keys, t=12:34]"
    assert format_shown_place(got) == "talk.vtt 12:34-13:05"


def test_a_text_that_has_lines_and_a_time_is_shown_by_its_lines():
    got = result(chunk(Locator(line_start=7, line_end=7, time_start=754.2)))
    assert format_shown_place(got) == "notes/keys.md:7"
    assert got.link is None


@pytest.mark.parametrize(
    ("query", "chars", "breaks", "told", "shown", "opened"),
    [
        ("morning", 20, (18, 35), "pages 3-5", (3, 3), 3),
        ("rotate", 20, (18, 35), "pages 3-5", (4, 4), 4),  # the page begins where the sentence does
        ("rotate", 20, (24,), "pages 3-4", (3, 4), 3),  # "Rotate | the keys."
        ("console", 20, (18, 35), "pages 3-5", (5, 5), 5),
        ("console", 40, (18, 35), "pages 3-5", (4, 5), 5),  # shown with a line of the page before
        ("console", 20, (), "page 3", (3, 3), 3),
        ("goodbye", 20, (18, 18, 18), "pages 3-6", (6, 6), 6),  # two blank pages
        ("absent", 300, (18, 18, 18), "pages 3-6", (3, 6), 3),
        ("console", 300, (18, 35), "pages 3-5", (3, 5), 5),
    ],
)
def test_a_book_is_cited_with_all_pages_and_opened_at_that_of_the_best_sentence(
    query, chars, breaks, told, shown, opened
):
    where = Locator(page=3, page_end=3 + len(breaks))
    passage = chunk(where, path="a b.pdf", text=SPOKEN, page_breaks=breaks)
    got = result(passage, query=query, snippet_chars=chars)
    assert (got.locator.page, got.locator.page_end) == (3, 3 + len(breaks))
    assert (got.snippet_locator.page, got.snippet_locator.page_end) == shown
    assert format_citation(passage) == f"[source: Keys, {told}]"
    best = told if not breaks else f"page {opened} ({told})"
    assert got.citation == f"[source: Keys, {best}]"
    first, last = shown
    pages = f"page {first}" if first == last else f"pages {first}-{last}"
    assert format_shown_place(got) == f"a b.pdf {pages}"
    assert got.link == f"a%20b.pdf#page={opened}"


def test_a_single_page_has_equal_ends_and_no_page_has_no_ends():
    assert result(chunk(Locator(page=3))).locator == ResultLocator(page=3, page_end=3)
    assert result(chunk()).locator == ResultLocator()


def test_the_lines_of_a_citation_are_the_whole_passages():
    passage = chunk(Locator(line_start=7, line_end=10), text=SPOKEN)
    got = result(passage, query="rotate", snippet_chars=20)
    assert got.citation == "[source: Keys, lines 7-10]"
    assert got.snippet_locator == ResultLocator(start=8, end=8, line_start=8, line_end=8)


def test_a_recordings_address_is_linked_where_the_snippet_begins():
    about = {"source_url": "https://youtu.be/x", "media_file": "talks/talk.mp4"}
    got = result(spoken(metadata=about), query="rotate", snippet_chars=20)
    assert got.link == "https://youtu.be/x?t=758"
    del about["source_url"]
    got = result(spoken(metadata=about), query="rotate", snippet_chars=20)
    assert got.link == "talks/talk.mp4#t=758"


def test_a_header_of_one_line_names_it_once():
    assert format_shown_place(result(chunk(Locator(line_start=7, line_end=7)))) == "notes/keys.md:7"


def test_a_result_without_a_reranker_is_scored_and_explained_by_the_fusion():
    got = result(chunk())
    parts = [part.contribution for part in got.explain.contributions]
    # 1.1 / 61 + 0.7 / 62 + 0.05 for the first rank in an original list
    assert got.score == pytest.approx(1.1 / 61 + 0.7 / 62 + 0.05)
    assert sum(parts) + got.explain.bonus == got.explain.fused == got.explain.score == got.score
    assert got.explain.rerank is None
    assert (got.relevance, got.certainty) == (0.5, "likely")


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
    got = result(chunk(), reranked)
    explain = got.explain
    assert got.score == explain.score == explain.rerank.fused_part + explain.rerank.rerank_part
    assert sum(one.contribution for one in explain.contributions) + explain.bonus == explain.fused
    assert explain.rerank == reranked


def test_lines_and_matches_of_the_snippet_are_in_the_result():
    got = result(chunk(Locator(line_start=4, line_end=4)))
    assert (got.snippet, got.snippet_lines, got.matches) == ("Rotate keys.", (4, 4), ((7, 11),))
    assert result(chunk()).snippet_lines is None
