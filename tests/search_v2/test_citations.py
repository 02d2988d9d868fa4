"""Citations, headers and links: one line each whatever the title, opened where it answers."""

import pytest

from catalog.core.documents import Cue, Locator
from catalog.core.params import MODES
from catalog.core.query import ParsedQuery, SubQuery
from catalog.core.results import Reranked, ResultLocator
from catalog.core.user_search import to_ranking
from catalog.embedding.model import EmbeddingModel
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.pipeline import EmbeddedText
from catalog.ingest.readers.markdown import MarkdownReader
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.terminal import Form, render
from catalog.interfaces.tools import call_tool
from catalog.library.indexing import Indexer
from catalog.retrieval.citations import (
    file_link,
    format_citation,
    format_clock,
    format_shown_place,
    move_link,
    page_link,
    recording_link,
)
from catalog.retrieval.fusion import RankedList, rrf
from catalog.retrieval.shape import to_result
from catalog.retrieval.snippets import Passage
from catalog.search_v2.service import SearchServiceV2
from counters import WordCounter
from fakes import WordEncoder, open_library, write
from made_results import stored
from tables import read_cases, table

NOWHERE = Locator()


def chunk(locator=NOWHERE, *, text="Rotate keys.", **more):
    return stored(text, locator=locator, **more)


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


@table("place, modality, told")
def test_a_citation_names_the_place_that_its_kind_of_document_has(place, modality, told):
    locator = Locator(**place)
    passage = chunk(locator, modality=modality)
    assert format_citation(passage) == told
    if locator.page_end in (None, locator.page):  # else that of the best sentence comes first
        assert result(passage).citation == told


@table("title, told")
def test_a_title_cannot_break_or_forge_a_citation(title, told):
    assert format_citation(chunk(title=title)) == told


@table("seconds, told")
def test_a_clock_rounds_down_to_seconds(seconds, told):
    assert format_clock(seconds) == told


@table("place, path, told")
def test_a_header_names_the_path_and_where_the_snippet_stands(place, path, told):
    text = "Some words stand in this line here.\n\n\nRotate the keys.\nIn the console.\n"
    shown = result(chunk(Locator(**place), path=path, text=text), query="rotate", snippet_chars=40)
    assert shown.snippet == "Rotate the keys.\nIn the console."
    assert format_shown_place(shown) == told


@table("query, chars, snippet, seconds, told, between")
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
    got = result(spoken(cues=()), query="rotate", snippet_chars=20)  # without cues, its own seconds
    assert got.citation == "[source: Keys, t=12:34]"
    assert format_shown_place(got) == "talk.vtt 12:34-13:05"


@table("query, chars, breaks, told, shown, opened")
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


def test_a_recordings_address_is_linked_where_the_snippet_begins():
    about = {"source_url": "https://youtu.be/x", "media_file": "talks/talk.mp4"}
    got = result(spoken(metadata=about), query="rotate", snippet_chars=20)
    assert got.link == "https://youtu.be/x?t=758"
    del about["source_url"]
    got = result(spoken(metadata=about), query="rotate", snippet_chars=20)
    assert got.link == "talks/talk.mp4#t=758"


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
    assert result(chunk()).locator == ResultLocator()
    assert result(chunk(Locator(page=3))).locator == ResultLocator(page=3, page_end=3)
    timed = result(chunk(Locator(line_start=7, line_end=7, time_start=754.2)))
    assert (format_shown_place(timed), timed.link) == ("notes/keys.md:7", None)
    got = result(
        chunk(Locator(line_start=7, line_end=10), text=SPOKEN), query="rotate", snippet_chars=20
    )
    assert got.citation == "[source: Keys, lines 7-10]"  # those of the whole passage
    assert got.snippet_locator == ResultLocator(start=8, end=8, line_start=8, line_end=8)


@table("target, told")
def test_a_link_seeks_in_the_form_that_its_site_reads(target, told):
    assert recording_link(target, target, 65.99) == told


@table("target")
def test_an_address_that_is_broken_or_of_another_scheme_gives_way_to_the_file(target):
    assert recording_link(target, "talks/a.mp4", 65) == "talks/a.mp4#t=65"


def test_a_file_named_like_a_scheme_is_no_address():
    assert file_link("javascript:alert(1)", "t=1") == "javascript%3Aalert%281%29#t=1"
    assert recording_link(None, "javascript:alert(1)", 1) == "javascript%3Aalert%281%29#t=1"


def test_seconds_are_rounded_down_and_never_negative():
    assert recording_link(None, "a.mp4", 0.99) == "a.mp4#t=0"
    assert recording_link(None, "a.mp4", -3.0) == "a.mp4#t=0"


@table("link, told")
def test_a_link_is_moved_to_another_second(link, told):
    assert move_link(link, 80.5) == told


def test_a_page_is_linked_in_pdfs_alone():
    assert page_link("papers/a b.PDF", 4) == "papers/a%20b.PDF#page=4"
    assert page_link("slides.pptx", 4) is None


TEA = "Tea is best when the water rests a while before it meets the leaves."
KEYS = "Every ninety days the keys of the kettle are rotated by hand, never sooner."


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Over ``tea.pdf``, whose one passage begins on page 2 and ends on page 4; page 3 is blank."""
    from reportlab.pdfgen.canvas import Canvas

    folder = tmp_path_factory.mktemp("documents")
    book = Canvas(str(folder / "tea.pdf"))
    for text in ("", TEA, "", KEYS):
        book.drawString(72, 700, text)
        book.showPage()
    book.save()
    (folder / "keys.md").write_text("The keys of the kettle hang by the door.\n")
    with open_library(tmp_path_factory.mktemp("home"), snippet_chars=80) as library:
        report = Indexer(library).build(folder, "notes")
        assert report.failed == ()
        yield SearchServiceV2(library)


def found(service, query, **asked):
    return service.search(query, dataset="notes", **asked)


def the_book(service, query, **asked):
    (hit,) = [one for one in found(service, query, **asked) if one.path == "tea.pdf"]
    return hit


def test_a_passage_over_a_blank_page_is_cited_with_all_its_pages(service):
    hit = the_book(service, "keys rotated")
    assert TEA.split()[0] in hit.text
    assert KEYS.split()[-1] in hit.text
    assert (hit.locator.page, hit.locator.page_end) == (2, 4)
    assert hit.citation == "[source: tea, page 4 (pages 2-4)]"
    told = found(service, "keys rotated", filters=["path=tea.pdf"]).to_dict()["results"][0]
    assert (told["locator"]["page"], told["locator"]["page_end"]) == (2, 4)
    assert to_ranking([told], "notes", 1).hits[0].location == "pages 2–4"


def test_the_link_opens_the_page_on_which_the_best_sentence_begins(service):
    assert the_book(service, "keys rotated").link == "tea.pdf#page=4"
    assert the_book(service, "water leaves").link == "tea.pdf#page=2"


def test_a_snippet_has_the_pages_of_its_own_text(service):
    hit = the_book(service, "keys rotated")
    assert hit.snippet == KEYS
    assert (hit.snippet_locator.page, hit.snippet_locator.page_end) == (4, 4)
    assert format_shown_place(hit.model_copy(update={"snippet_lines": None})) == "tea.pdf page 4"


@pytest.mark.parametrize("mode", MODES)
@table("asked, paths", list)
def test_each_of_its_pages_finds_it_in_every_mode(service, mode, asked, paths):
    hits = found(service, "the keys of the kettle", mode=mode, filters=[asked])
    assert {hit.path for hit in hits} == set(paths)


PAPER = read_cases(__file__)["paper"]
HEADINGS = ("Paper", "Setup", "Method of tea", "Steps", "Results")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """One passage, as the vault preset makes of small sections."""
    folder = tmp_path_factory.mktemp("papers")
    write(folder, paper_dot_md=PAPER, other_dot_md="# Other\n\nThe kettle is elsewhere.\n")
    sizes = {"chunk_size": 800, "chunk_min_size": 300, "chunk_overlap": 60}
    with LocalEngine(open_library(tmp_path_factory.mktemp("home"), **sizes)) as engine:
        Indexer(engine.library).build(folder, "notes")
        yield engine


def search(engine, **more):
    asked = {"query": "kettle", "dataset": "notes", **more}
    return engine.ask("search", asked)["results"]


def test_a_result_names_them_all_in_order(engine):
    (hit,) = search(engine, docs=["paper.md"])
    assert hit["text"].strip() == PAPER.strip()
    assert tuple(hit["sections"]) == HEADINGS
    assert hit["sections"][: len(hit["heading_path"])] == hit["heading_path"]


@pytest.mark.parametrize("mode", ["lexical", "vector", "hybrid"])
@pytest.mark.parametrize("heading", HEADINGS)
def test_each_finds_it_as_a_section(engine, heading, mode):
    hits = search(engine, filters=[f'section="{heading}"'], mode=mode)
    assert [hit["path"] for hit in hits] == ["paper.md"]


def test_people_and_agents_see_all_headings(engine):
    asked = {"query": "kettle", "dataset": "notes"}
    printed = render("search", engine.answer("search", asked), Form()).out
    assert "] Paper; Setup; Method of tea; Steps; Results — paper.md:" in printed
    told = call_tool(engine, "search", {"query": "kettle", "docs": ["paper.md"]})
    assert "paper.md — Paper; Setup; Method of tea; Steps; Results (lines 1–17)" in told.text


def test_the_embedded_text_names_headings_that_the_passage_does_not_contain():
    parsed = MarkdownReader().parse(PAPER, "paper.md")
    chunker = DocumentChunker(WordCounter(), chunk_size=800, min_size=300)
    (span,) = chunker.cut(parsed).spans
    embedded = EmbeddedText(EmbeddingModel(WordEncoder()))
    assert embedded.windows(parsed, span) == (
        f"Method of tea\n{parsed.text[span.start : span.end]}",
    )
