"""The report: what it must show, and what no text from outside may do to it."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from catalog.core.errors import InputError
from catalog.core.user_search import RankedHit, to_ranking
from catalog.evaluation import report_text
from catalog.evaluation.comparison import PipelineComparison
from catalog.evaluation.gates import parse_gate
from catalog.evaluation.golden_files import write_whole
from catalog.evaluation.report import (
    build_page,
    compare_settings,
    query_view,
    render_report,
)
from catalog.evaluation.report_text import (
    cut_excerpt,
    format_share,
    make_showable,
)
from evaluation.stubs import TableBackend, compared, question
from tables import table

CREATED = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
VOID = {"meta", "br", "rect", "line", "path", "link", "img"}
URL_ATTRIBUTES = {"href", "src", "srcset", "action", "data", "poster", "xlink:href", "background"}


class Parsed(HTMLParser):
    """Elements with attributes, the text, and whether every tag was closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.stack: list[str] = []
        self.texts: list[str] = []
        self.marked: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if "style" in self.stack:
            return
        self.texts.append(data)
        if self.stack and self.stack[-1] == "mark":
            self.marked.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def parsed(comparison: PipelineComparison) -> Parsed:
    page = Parsed(render_report(comparison, created=CREATED))
    assert page.stack == []
    return page


def many(count: int, *, better: int = 0, worse: int = 0) -> PipelineComparison:
    """``count`` questions, of which the new search gains ``better`` and loses ``worse``."""
    first, second = ["right.md", "wrong.md"], ["wrong.md", "right.md"]
    numbers = range(count)
    return compared(
        [question(n) for n in numbers],
        {f"q{n}": second if n < better else first for n in numbers},
        {f"q{n}": second if better <= n < better + worse else first for n in numbers},
    )


@pytest.mark.slow
def test_the_verdict_stands_first_with_its_interval_and_in_plain_words():
    comparison = many(40, better=20)
    page = parsed(comparison)
    assert page.text.index("new is better than old") < page.text.index("Metrics")
    assert comparison.verdict in page.text
    assert "On 40 questions with known answers, new shows the right documents earlier" in page.text
    assert re.search(r"it lies between \+0\.\d{3} and \+0\.\d{3} with 95 % confidence", page.text)


@pytest.mark.slow
def test_the_gates_stand_there_with_what_was_decided_and_on_what():
    comparison = many(40, worse=20)
    gates = [parse_gate(text).decide(comparison) for text in ("ndcg@10 worse", "failed > 3")]
    page = Parsed(render_report(comparison, created=CREATED, gates=gates))
    assert page.stack == []
    assert re.search(r"ndcg@10 worse FAILED difference -0\.\d{3}, bounds \[-0", page.text)
    assert "failed > 3 passed difference +0.000" in page.text
    assert page.text.index("FAILED") < page.text.index("Every question")
    assert "Gate" not in parsed(comparison).text


@table("count, better, worse, headline")
def test_every_outcome_has_its_headline(count, better, worse, headline):
    comparison = many(count, better=better, worse=worse)
    assert build_page(comparison, CREATED)["headline"] == headline


def test_a_name_that_looks_like_the_verdicts_numbers_stays_whole():
    name = "mine: nDCG@10 first"
    comparison = compared(
        [question(1)], {"q1": ["right.md"]}, TableBackend(name, {"q1": ["right.md"]})
    )
    assert build_page(comparison, CREATED)["headline"] == f"Too few queries to tell {name} from old"


def test_every_query_is_there_and_every_bar_leads_to_one():
    answerable = [question(n) for n in range(30)]
    none = [question(n, kind="unanswerable", expected=[]) for n in range(30, 33)]
    right = {f"q{n}": ["right.md"] for n in range(33)}
    page = parsed(compared([*answerable, *none], right, right))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert {f"q-q{n}" for n in range(33)} <= set(ids)
    assert len(ids) == len(set(ids))
    links = [one["href"] for one in page.all("a")]
    assert [link for link in links if link.startswith("#q-")] == [
        f"#q-q{n}" for n in sorted(range(30), key=lambda n: f"q{n}")
    ]
    assert {link[1:] for link in links} <= set(ids)


def test_warnings_stand_above_the_metrics():
    comparison = compared(
        [question(n) for n in range(4)],
        {f"q{n}": ["right.md"] for n in range(4)},
        {"q0": RuntimeError("out of paper"), **{f"q{n}": ["right.md"] for n in range(1, 4)}},
    )
    text = parsed(comparison).text
    assert comparison.warnings[0] in text
    assert text.index("Read with care") < text.index("nDCG@10 decides")


def with_path(comparison: PipelineComparison, old: str, new: str) -> PipelineComparison:
    """The candidate's document of one path under another, one that cannot be scored by itself."""
    outcomes = {}
    for query, one in comparison.candidate.outcomes.items():
        answer = one.answer
        if answer is not None:
            renamed = [replace(p, path=new) if p.path == old else p for p in answer.hits]
            answer = replace(answer, hits=tuple(renamed))
        outcomes[query] = replace(one, answer=answer)
    return replace(comparison, candidate=replace(comparison.candidate, outcomes=outcomes))


HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "{{ 7 * 7 }}{% raw %}",
    "</title></style></svg><svg onload=alert(1)>",
    "javascript:alert(1) https://example.com/x.js",
    "\u202egnp.exe\u2066 \x00\x07\x1b[31m\x85\ufffe",
    "lone \ud800 surrogate \udfff",
    "]]><!-- -->&lt;b&gt;",
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_text_from_outside_becomes_markup(hostile):
    bad = hostile
    plain = bad.encode("utf-8", "replace").decode()  # a golden set holds no lone surrogates
    name = "".join(re.findall(r"[!-~]+", bad))
    table = {
        "a": [
            RankedHit(
                plain,
                1.0,
                f"{bad} question {bad}",
                location=bad,
                explain=(bad,),
                headings=bad,
                certainty=bad,
            ),
            RankedHit("right.md", 0.5, bad),
        ],
        "b": ValueError(bad),
        "c": [plain],
    }
    queries = [
        question(1, id="a", query=f"question {plain}", note=plain),
        question(2, id="b", query=plain, expected=[{"path": plain, "grade": 2, "span": plain}]),
        question(3, id="c", query=plain, expected=[], kind="unanswerable"),
        question(4, id=f"d{name}", query=plain, filters=[f"path={plain}"]),
    ]
    hostile_backend = TableBackend(bad, table, {bad: {bad: bad}, "n": 1})
    right = {query.id: ["right.md", plain] for query in queries}
    comparison = with_path(compared(queries, right, hostile_backend), plain, bad)
    text = render_report(comparison, created=CREATED)
    page = Parsed(text)

    assert page.stack == []
    assert {name for name, _ in page.elements}.isdisjoint(
        {"script", "img", "iframe", "object", "embed", "link", "form", "base", "foreignobject"}
    )
    for name, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on")], name
        for key in URL_ATTRIBUTES & attributes.keys():
            assert attributes[key].startswith("#")
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text
    )
    text.encode("utf-8")
    assert "49{%" not in text


def test_a_passage_has_its_headings_its_place_and_its_certainty():
    passage = {
        "path": "right.md",
        "heading_path": ["Guide", "Rotating"],
        "locator": {"unit": "line", "line_start": 4, "line_end": 8},
        "certainty": "likely",
    }
    hit = to_ranking([passage], "notes", 1).hits[0]
    queries = [question(1, id="a")]
    comparison = compared(queries, {"a": ["wrong.md"]}, TableBackend("new", {"a": [hit]}))
    passages = render_report(comparison, created=CREATED).partition("Passages of new")[2]
    told = re.sub(r"<[^>]*>", " ", passages.partition("</details>")[0])
    assert "right.md Guide > Rotating lines 4–8 likely" in " ".join(unescape(told).split())


def test_the_page_asks_nothing_of_the_network():
    page = render_report(many(30, better=9), created=CREATED)
    assert "default-src 'none'" in page
    assert not re.search(r"https?://|@import|url\(", page)


def test_the_querys_words_are_marked_in_the_passages():
    text = "Bees sleep. The Keeper of bees opens a hive; keepers wear gloves. Beeswax too."
    comparison = compared(
        [question(1, query="how does the keeper find bees?")],
        {"q1": ["wrong.md", "right.md"]},
        {"q1": [RankedHit("right.md", 1.0, text)]},
    )
    assert parsed(comparison).marked == ["Bees", "Keeper", "bees", "keepers"]


def test_unjudged_documents_are_distinguished_from_those_judged_wrong():
    comparison = compared(
        [question(1)], {"q1": ["right.md"]}, {"q1": ["new.md", "wrong.md", "right.md"]}
    )
    view = query_view(
        comparison.golden.queries[0], comparison.baseline, comparison.candidate, "q-1"
    )
    assert [
        (row["name"], row["badge"]["kind"], row["badge"]["text"]) for row in view["right"]["rows"]
    ] == [("new.md", "unjudged", "?"), ("wrong.md", "wrong", "0"), ("right.md", "relevant", "3")]


def test_moves_between_the_lists_are_reported_in_both_directions():
    old = ["a", "b", "c", *(f"x{n}" for n in range(9)), "right.md", "late"]
    new = ["right.md", "b", "a", "fresh", *(f"x{n}" for n in range(9)), "c"]
    comparison = compared([question(1)], {"q1": old}, {"q1": new})
    view = query_view(
        comparison.golden.queries[0], comparison.baseline, comparison.candidate, "q-1"
    )
    # old: a1 b2 c3 x0-x8 4-12 right 13 late 14; new: right1 b2 a3 fresh4 x0-x8 5-13 c14
    assert [(row["name"], row["move"]) for row in view["right"]["rows"][:5]] == [
        ("right.md", "▲12"), ("b", "="), ("a", "▼2"), ("fresh", "new"), ("x0", "▼1"),
    ]  # fmt: skip
    assert [(row["name"], row["move"]) for row in view["left"]["rows"][:3]] == [
        ("a", ""),
        ("b", ""),
        ("c", "to 14"),
    ]
    ends = {(line["start"], line["end"]) for line in view["lines"]}
    assert {(0, 2), (1, 1), (3, 4)} <= ends
    assert (view["before"]["right.md"], view["after"]["right.md"]) == (13, 1)


def test_an_answer_that_neither_found_is_named():
    lost = [{"path": "right.md", "grade": 3}, {"path": "shelf/lost.md", "grade": 1}]
    right = {"q1": ["right.md"]}
    page = parsed(compared([question(1, expected=lost)], right, right))
    assert "shelf/lost.md" in page.text
    assert "found by neither" in page.text


def test_failed_queries_are_listed_with_their_reason():
    comparison = compared(
        [question(1), question(2)],
        {"q1": ["right.md"], "q2": ["right.md"]},
        {"q1": ["right.md"], "q2": TimeoutError("the shelf is locked")},
    )
    text = parsed(comparison).text
    assert text.count("TimeoutError: the shelf is locked") >= 2  # in the table and at the query
    assert "No query failed" not in text
    (lost, *_) = build_page(comparison, CREATED)["losses"]
    assert {row["move"] for row in lost["left"]["rows"]} == {""}


def test_values_missing_from_a_run_are_shown_as_missing():
    text = parsed(many(30, better=9)).text
    for row in (
        "Scope violations passages that filters forbid not known not known",
        "Low confidence answers flagged as doubtful not known not known",
        "Stability queries with the same ranking when asked again 100 % 100 %",
        "Failed queries that raised an error 0 0",
    ):
        assert row in text


def test_unanswerable_queries_are_counted_apart():
    doubting = TableBackend("new", {"q0": ["right.md"], "q1": ["right.md"]})
    doubting.doubt = True
    none = question(1, kind="unanswerable", expected=[])
    comparison = compared([question(0), none], {"q0": ["right.md"]}, doubting)
    page, text = build_page(comparison, CREATED), parsed(comparison).text
    assert "got passages although no document answers 0 of 1 1 of 1" in text
    assert "of these, flagged as doubtful not known 1 of 1" in text
    assert [view["query"].id for view in page["unanswerable"]] == ["q1"]
    assert len(page["deltas"]["bars"]) == 1


def test_runs_without_times_say_so_instead_of_showing_zeros():
    right = {"q1": ["right.md"]}
    comparison = compared([question(1)], right, right, repeats=0)
    text = parsed(comparison).text
    assert "Median time to answer not known → not known" in text
    assert "neither was timed" in text
    assert "whole answer" not in text


def test_stages_of_either_are_listed_below_the_whole_time():
    staged = TableBackend("new", {"q1": ["right.md"]})
    staged.stages = {"fuse": 2.0}
    text = parsed(compared([question(1)], {"q1": ["right.md"]}, staged)).text
    assert text.index("whole answer") < text.index("fuse not known not known 2.0 ms 2.0 ms")


@pytest.mark.parametrize(
    ("count", "better", "worse"),
    [(30, 0, 0), (30, 30, 0), (30, 0, 30), (1, 0, 0), (2, 1, 1)],
    ids=["all ties", "no loss", "no win", "one query", "one of each"],
)
def test_extreme_comparisons_still_make_a_page(count, better, worse):
    comparison = many(count, better=better, worse=worse)
    page = parsed(comparison)
    assert comparison.verdict in page.text
    positions = [
        float(attributes[key])
        for name, attributes in page.elements
        if name == "rect"
        for key in ("x", "y", "width", "height")
    ]
    assert all(0 <= value <= 100 for value in positions)


def test_few_queries_are_too_few_to_tell_in_every_stratum():
    comparison = many(24, better=24)
    page = build_page(comparison, CREATED)
    assert {row.outcome for row, _ in page["strata"]} == {"too few to tell"}
    assert {mark["side"] for _, mark in page["strata"] + page["metrics"]} == {"unclear"}
    assert "only 24 questions" in parsed(comparison).text


@pytest.mark.slow
def test_five_hundred_queries_stay_under_three_megabytes():
    filler = [RankedHit(f"docs/part/{n}.md", 1 / n, "words " * 400) for n in range(1, 40)]
    queries = [question(n) for n in range(500)]
    found = {query.id: [RankedHit("right.md", 1.0, "x" * 9000), *filler] for query in queries}
    moved = {query.id: [*filler[:5], "right.md", *filler[5:]] for query in queries}
    page = render_report(compared(queries, found, moved, repeats=0), created=CREATED)
    assert len(page.encode()) < 3_000_000


def test_equal_comparisons_give_equal_pages():
    one, two = (render_report(many(30, better=9, worse=3), created=CREATED) for _ in range(2))
    assert one == two


def test_every_table_and_drawing_can_be_read_aloud():
    page = parsed(many(30, better=9, worse=3))
    assert page.all("html")[0]["lang"] == "en"
    assert all("scope" in attributes for attributes in page.all("th"))
    assert all(one["role"] == "img" and one["aria-label"] for one in page.all("svg"))


def test_settings_that_differ_come_first():
    settings = compare_settings({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 5}, "e": None})
    assert [row[:3] for row in settings if row[3]] == [
        ("b.c", "2", "5"),
        ("b.d", "3", "–"),
        ("e", "–", "–"),
    ]
    assert settings[-1][0] == "a"


def test_the_file_is_replaced_in_one_step(tmp_path):
    target = tmp_path / "report.html"
    target.write_text("older")
    write_whole(target, render_report(many(2), created=CREATED))
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("place", ["missing/report.html", "folder", "null\0.html"])
def test_a_file_that_cannot_be_written_is_a_typed_error_and_leaves_nothing(tmp_path, place):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot write"):
        write_whole(tmp_path / place, render_report(many(2), created=CREATED))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_excerpts_show_where_most_of_the_querys_words_stand():
    text = "bee " + "filler " * 200 + "the keeper of the bee opens the hive " + "filler " * 200
    pieces = cut_excerpt(text, "bee keeper hive", limit=120)
    assert [word for word, is_marked in pieces if is_marked] == ["keeper", "bee", "hive"]
    assert pieces[0][0] == "… "
    assert pieces[-1][0] == " …"
    assert len("".join(piece for piece, _ in pieces)) <= 120 + 4


def test_characters_that_cannot_be_seen_are_shown():
    assert make_showable("a\x00b\u202ec\ud800\td\n") == "a␀b⟨U+202E⟩c�\td\n"


@table("name, number, expected")
def test_numbers_are_written_as_people_read_them(name, number, expected):
    assert getattr(report_text, name)(number) == expected
    assert format_share(None) == "not known"


@pytest.mark.slow
def test_a_browser_shows_the_page_without_scrolling_sideways(tmp_path):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if browser is None or sys.platform == "win32":
        pytest.skip("no chromium binary is found")
    long = "unbreakable" * 30
    queries = [question(1, query=long, note=long), *(question(n) for n in range(2, 30))]
    right = {query.id: ["right.md", long] for query in queries}
    backend = TableBackend(long, right | {"q1": [RankedHit(long, 1.0, long, explain=(long,))]})
    page = render_report(compared(queries, right, backend), created=CREATED)
    write_whole(tmp_path / "report.html", page)
    (tmp_path / "frame.html").write_text(
        "<!doctype html><iframe id=f src=report.html style='width:420px;height:600px'></iframe>"
        "<script>f.onload = () => {const page = f.contentDocument.documentElement;"
        "document.title = `${page.clientWidth} ${page.scrollWidth} "
        "${f.contentDocument.querySelectorAll('svg').length}`}</script>"
    )
    told = _dumped(browser, tmp_path)
    found = re.search(r"<title>(\d+) (\d+) (\d+)</title>", told)
    assert found, told[:500]
    shown, needed, drawings = map(int, found.groups())
    assert drawings > 30
    assert needed <= shown


def _dumped(browser: str, folder: Path) -> str:
    arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    files = ["--allow-file-access-from-files", f"--user-data-dir={folder / 'profile'}"]
    try:
        return subprocess.run(
            [browser, *arguments, *files, (folder / "frame.html").as_uri()],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"chromium does not run here: {error}")
