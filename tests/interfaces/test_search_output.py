"""What ``catalog search`` prints, from answers made by hand."""

import sys

import pytest

from catalog.core.results import (
    Evidence,
    EvidenceLine,
    OtherPlace,
    Reranked,
    ResultLocator,
    StageReport,
)
from catalog.interfaces.cli.output import complain, has_styles
from catalog.interfaces.terminal import Form, explanation_lines, passages_text
from made_results import FUSED, answer, part, result

RERANKED = FUSED.model_copy(
    update={
        "score": 0.9124,
        "rerank": Reranked(
            model="cross-encoder/ms-marco-MiniLM-L-12-v2",
            blend="linear",
            rank=3,
            raw_score=4.21,
            relevance=0.908,
            fused_part=0.64,
            rerank_part=0.2724,
        ),
    }
)


@pytest.fixture
def printed():
    def run(*results, explain=False, **more):
        form = Form(bold=has_styles(sys.stdout), explain=explain)
        return passages_text(answer(*results, **more), form)

    return run


def test_a_result_is_title_place_number_and_snippet_and_failed_stages_are_reported(printed):
    told = printed(result())
    assert told.out == (
        "[1] Keys > Rotating — notes/keys.md:120-121  likely\n"
        "    Rotate the\n"
        "    API keys\there.\n"
        "\n"
    )
    assert told.err.splitlines() == [
        "1 passage in 14 ms",
        "catalog: stage vector failed: ConnectionError: no answer",
    ]


def test_passages_that_hardly_match_are_named_with_their_place_and_certainty_alone(printed):
    weak = [result(rank=at, path=f"{at}.md", relevance=0.04, certainty="possible") for at in (2, 3)]
    out = printed(result(rank=1, relevance=0.04), *weak).out
    first, named = out.split("\n\n")
    assert "API keys" in first  # the best is shown whatever it is worth
    assert named == (
        "2 more that hardly match:\n"
        "[2] Keys > Rotating — 2.md:120-121  possible\n"
        "[3] Keys > Rotating — 3.md:120-121  possible\n"
    )
    assert printed(*weak, explain=True).out.count("API keys") == 2


def other_place(path, **more):
    fields = result(path=path, **more).model_dump(include=set(OtherPlace.model_fields))
    return OtherPlace(**fields)


def test_other_places_of_a_text_are_shown_below_it_and_further_ones_are_counted(printed):
    talk = {"modality": "audio_transcript", "locator": ResultLocator(time_start=5, time_end=9)}
    others = [other_place("b.md"), other_place("c.vtt", **talk), *map(other_place, "def")]
    out = printed(result(also_in=others)).out
    assert out.splitlines()[-2:] == [
        "    also in b.md:120-140, c.vtt 0:05-0:09, d:120-140 and 2 more",
        "",
    ]
    two = printed(result(also_in=others[:1]), datasets=("notes", "more")).out
    assert "also in notes:b.md:120-140\n" in two


@pytest.mark.parametrize("title", ["keys", "keys.md", "notes/keys.md"])
def test_a_title_that_is_the_name_of_the_file_is_not_told_twice(printed, title):
    out = printed(result(title=title, heading_path=())).out
    assert out.splitlines()[0] == "[1] notes/keys.md:120-121  likely"


def test_a_title_that_is_the_first_heading_is_told_once_and_another_goes_before(printed):
    assert printed(result(title="Guide")).out.startswith("[1] Guide > Keys > Rotating — notes/")


def heard(rank, link="talks/lecture.mp4#t=65", media="lecture.mp4", **more):
    names = ("time_start", "time_end", "kind", "speaker", "text", "chunk_id")
    said = (65.2, 78.0, "Audio", None, "We then apply batch normalisation...", "c1")
    seen = (72.0, 72.4, "Screen", None, "Slide: BatchNorm formula", "c2")
    lines = tuple(EvidenceLine(**dict(zip(names, one, strict=True))) for one in (said, seen))
    evidence = Evidence(
        media=media, dataset="notes", start=50, end=93, lines=lines, anchors=("c1",), link=link
    )
    shown = {"modality": "video_transcript", "evidence": evidence, "link": link, "rank": rank}
    return result(**{**shown, **more})


def test_a_passage_of_a_recording_is_what_was_said_and_shown_and_where_to_play_it(printed):
    assert printed(heard(2)).out == (
        "[2] lecture.mp4 — video transcript  likely\n"
        '    00:01:05–00:01:18 (Audio): "We then apply batch normalisation..."\n'
        '    00:01:12 (Screen): "Slide: BatchNorm formula"\n'
        "    talks/lecture.mp4#t=65\n"
        "\n"
    )


def test_a_passage_that_shares_its_evidence_refers_to_the_first_that_has_it(printed):
    second = heard(2, modality="video_frame").model_copy(update={"evidence_at": 1})
    out = printed(heard(1), second, heard(3, media="other.mp4")).out
    assert out.count("(Screen)") == 2
    assert "[2] lecture.mp4 — video frame  likely\n    see [1]\n" in out
    assert "see [2]" not in out


def test_a_recordings_name_and_lines_forge_nothing(printed):
    evil = "a\n[9] b\x1b[31m"
    line = EvidenceLine(
        time_start=0, time_end=0, kind="Audio", speaker="S\x07", text="x\u202e", chunk_id="c"
    )
    hit = heard(1, media=evil)
    hit = hit.model_copy(update={"evidence": hit.evidence.model_copy(update={"lines": (line,)})})
    out = printed(hit).out
    assert out.splitlines()[0] == "[1] a [9] b�[31m — video transcript  likely"
    assert out.splitlines()[1] == '    00:00:00 (Audio, S�): "x�"'


def test_a_page_is_printed_with_the_link_that_opens_it(printed):
    assert "    API keys\there.\n    a.pdf#page=4\n" in printed(result(link="a.pdf#page=4")).out


def test_where_nothing_is_found_what_was_searched_is_said(printed):
    searched = "Searched by words in 3 documents of 'notes' with after=2024."
    out = printed(searched=searched, nearest=["a.md", "b.md"]).out
    assert out.splitlines()[1:] == [searched, "Nearest without these conditions: a.md, b.md"]


def test_an_answer_of_low_confidence_says_so_first(printed):
    out = printed(result(), low_confidence=True, confidence=0.118).out
    assert out.splitlines()[:2] == [
        "low confidence: perhaps none of these passages answers the query",
        "",
    ]
    assert "low confidence" not in printed(result(), low_confidence=False, confidence=0.9).out
    assert "low confidence" not in printed(low_confidence=True, confidence=0.0).out


def on_a_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_on_a_terminal_matches_are_bold(printed, monkeypatch):
    on_a_terminal(monkeypatch)
    lines = printed(result()).out.splitlines()
    assert lines[1:3] == ["    \x1b[1mRotate\x1b[22m the", "    API \x1b[1mkeys\x1b[22m\there."]


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_without_colour_gets_no_colour_codes(printed, monkeypatch, variable, value):
    on_a_terminal(monkeypatch)
    monkeypatch.setenv(variable, value)
    assert "\x1b" not in printed(result()).out


def test_control_characters_of_a_document_never_reach_the_terminal(printed, monkeypatch):
    on_a_terminal(monkeypatch)
    evil = "\x1b[31mkeys\x1b[0m\x07\u202e"
    hit = result(snippet=evil, matches=((0, 9),), path=f"a{evil}", title=evil, heading_path=(evil,))
    out = printed(hit, explain=True).out
    assert not {"\x07", "\u202e"} & set(out)
    assert out.count("\x1b") == 2


def test_a_lone_carriage_return_ends_a_line_of_the_snippet(printed):
    out = printed(result(snippet="one\rtwo\x0bthree", matches=())).out
    assert out.splitlines()[1] == "    one"
    assert "    two�three\n" in out


def test_an_explained_result_is_a_tree_of_its_parts():
    assert list(explanation_lines(RERANKED)) == [
        "score 0.912400",
        "├─ fused (adaptive) 13.204000 → 0.640000 of the linear blend",
        "│  ├─ +8.102100  lexical (bm25) rank 1, score 12.3100, weight 1.22",
        "│  ├─ +5.101900  vector (qdrant) rank 2, score 0.8123, weight 0.78",
        '│  └─ +0.000000  vector (qdrant), expansion "how to rotate keys", rank 4, '
        "score 0.7900, weight 0.39",
        "└─ reranked (ms-marco-MiniLM-L-12-v2) rank 3 before, score 4.2100, relevance 91 % "
        "→ +0.272400",
    ]


def test_without_a_reranker_the_lists_are_the_score():
    of_rank = FUSED.model_copy(update={"bonus": 0.05, "fusion": "rrf"})
    assert list(explanation_lines(of_rank))[-1] == "└─ +0.050000  top-rank bonus"
    lines = list(explanation_lines(FUSED.model_copy(update={"bonus": 0.05})))
    assert lines[0] == "score 13.204000 (adaptive)"
    assert lines[1].startswith("├─ +8.102100  lexical")
    assert lines[-1] == "└─ +0.050000  words bonus"
    assert len(lines) == 5


def test_a_passage_that_the_reranker_was_not_given_is_not_said_to_be_read():
    unread = RERANKED.rerank.model_copy(
        update={"raw_score": None, "relevance": None, "rerank_part": 0.0, "rank": 41}
    )
    last = list(explanation_lines(RERANKED.model_copy(update={"rerank": unread})))[-1]
    assert last == "└─ reranked (ms-marco-MiniLM-L-12-v2) rank 41 before, not read → +0.000000"


def test_a_long_expansion_is_shortened_to_one_line():
    long = part("vector", 1.0, 1, 0.5, 1.0, "word " * 100, "expansion")
    lines = list(explanation_lines(FUSED.model_copy(update={"contributions": (long,)})))
    assert lines[1].count("word") == 12
    assert '…", rank 1' in lines[1]


def test_explain_prints_the_tree_and_then_every_stage_on_a_line(printed):
    told = printed(result(explain=RERANKED), explain=True)
    assert "    #3fa9c1ab\n    score 0.912400\n    ├─ fused (adaptive)" in told.out
    assert told.err.splitlines() == [
        "1 passage in 14 ms",
        "lexical  ran           1.2 ms  bm25: 9 passages",
        "vector   failed       12.0 ms  ConnectionError: no answer",
        "rerank   skipped       0.0 ms  off",
        "shape    ran           0.3 ms",
        "catalog: stage vector failed: ConnectionError: no answer",
    ]
    assert "├─" not in printed(result(explain=RERANKED)).out


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r", "\u2028", "\x85", "\n\n  "])
def test_the_text_of_a_model_cannot_forge_a_line(printed, capsys, line_break):
    said = f"no lines{line_break}catalog: all is well"
    stages = (
        StageReport(name="expand", status="ran", ms=1.0, note=said),
        StageReport(name="rerank", status="failed", ms=1.0, note=said),
    )
    assert printed(result(), stages=stages).err.splitlines() == [
        "1 passage in 14 ms",
        "catalog: stage rerank failed: no lines catalog: all is well",
    ]
    complain(said)
    assert capsys.readouterr().err.splitlines() == ["catalog: no lines", "  catalog: all is well"]


def test_a_note_is_distinguished_from_the_passages(printed):
    told = printed(notes=["no document of type 'pdf'\ntypes: md 2"], stages=())
    assert told.err.splitlines()[1:] == ["catalog: no document of type 'pdf'", "  types: md 2"]
    assert told.out == "No passage of 'notes' answers 'keys'.\n"
