"""Golden sets and recorded runs on the page."""

import json
import re
from html import unescape

import pytest
from starlette.testclient import TestClient

from catalog.core.scope import asked_as
from catalog.core.settings import ServeSettings
from catalog.evaluation.comparison import compare_runs
from catalog.evaluation.golden import Expected, GoldenQuery, GoldenSet, Judgement, Preference
from catalog.evaluation.golden_files import read_golden, save_golden
from catalog.evaluation.judging import add_judgement
from catalog.evaluation.run_records import record_run
from catalog.evaluation.runs import run_backends
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.server.asgi import build_app
from catalog.interfaces.server.security import Address
from catalog.library.indexing import Indexer
from evaluation.stubs import TableBackend
from fakes import open_library, write

ORIGIN = {"origin": "http://127.0.0.1:8180"}
AT = "2026-03-01T12:{:02}:00Z"


def grade(path, value, by):
    return Judgement(path=path, grade=value, by=by, at=AT.format(0))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    write(folder / "notes", a_dot_md="# A\n\nKeys rotate.\n", b_dot_md="# B\n\nBread bakes.\n")
    with LocalEngine(open_library(folder / "home")) as engine:
        Indexer(engine.library).build(folder / "notes", "notes")
        yield engine


@pytest.fixture
def client(store, tmp_path):
    page = {"golden": tmp_path / "golden"}
    app = build_app(store, Address("127.0.0.1", 8180), ServeSettings(), page=page)
    return TestClient(app, base_url="http://127.0.0.1:8180", follow_redirects=True)


@pytest.fixture
def team(tmp_path):
    """A set of which 12 questions are judged; call it to read the set again."""
    choice = {"left": "v1", "right": "v2", "preferred": "left", "mode": "blind", "by": "ann"}
    asked = [
        GoldenQuery(
            id=f"q{n}", query=f"is {n} odd?", preferences=(Preference(**choice, at=AT.format(n)),)
        )
        for n in range(12)
    ]
    disputed = GoldenQuery(
        id="d<1>",
        query="<b>bold</b>?",
        expected=(Expected(path="a.md", grade=2), Expected(path="gone.md", grade=1)),
        judgements=(grade("a.md", 2, "ann"), grade("a.md", 0, "bob")),
    )
    file = tmp_path / "golden" / "team.jsonl"
    save_golden(file, [*asked, disputed])
    return lambda: read_golden(file).queries


def words(answer):
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def test_a_set_shows_its_questions_labels_verdict_and_agreement(client, team):
    assert "team 13 questions" in words(client.get("/sets"))
    page = client.get("/sets", params={"set": "team"})
    told = words(page)
    assert "v1 is preferred to v2, decided after 9 0 0 0 both bad 12" in told
    assert "ann and bob agree on 0% of 1 document (kappa 0.00)" in told
    assert "<b>bold</b>? d<1>" in told
    assert "<b>bold" not in page.text
    assert "2 a.md 1 gone.md" in told


def test_a_conflict_is_settled_by_a_named_person(client, team):
    data = {"set": "team", "id": "d<1>", "path": "a.md", "grade": "1"}
    refused = client.post("/sets", data={**data, "by": " "}, headers=ORIGIN)
    assert (refused.status_code, "give your name" in words(refused)) == (400, True)
    page = client.post("/sets", data={**data, "by": "cat"}, headers=ORIGIN)
    assert "Conflicts to settle" not in page.text
    assert team()[-1].grades["a.md"] == 1
    assert [one.by for one in team()[-1].judgements if one.settled] == ["cat"]


def test_a_set_is_checked(client, team):
    check = words(client.get("/sets", params={"set": "team", "check": "1"}))
    assert "no document 'gone.md'" in check
    unknown = {"set": "team", "id": "q99", "path": "a.md", "grade": "1", "by": "cat"}
    refused = client.post("/sets", data=unknown, headers=ORIGIN)
    assert (refused.status_code, "no question 'q99'" in words(refused)) == (400, True)


def test_a_set_is_exported_as_it_is_in_the_folder(client, team):
    answer = client.get("/sets.jsonl", params={"set": "team"})
    assert [json.loads(line)["id"] for line in answer.text.splitlines()][-1] == "d<1>"
    assert 'attachment; filename="team.jsonl"' in answer.headers["content-disposition"]
    for name in ("nothing", "../team", "", "/etc/passwd"):
        assert client.get("/sets.jsonl", params={"set": name}).status_code in (400, 404)


@pytest.mark.parametrize("line", [b"{}\n", b'{"id": \xff'])
def test_a_damaged_set_is_named_with_its_line_and_hides_no_other(client, team, tmp_path, line):
    (tmp_path / "golden" / "bad.jsonl").write_bytes(line)
    page = client.get("/sets", params={"set": "bad"})
    assert (page.status_code, "bad.jsonl" in words(page)) == (400, True)
    assert ("line 1" in words(page)) == (line == b"{}\n")
    told = words(client.get("/sets"))
    assert "team 13 questions" in told
    assert "bad" in told


@pytest.mark.parametrize("path", ["/sets?set=team", "/sets.jsonl?set=team", "/runs", "/report"])
def test_a_role_sees_neither_sets_nor_runs(client, team, path):
    with asked_as("guest"):
        answer = client.get(path)
    assert answer.status_code == 400
    assert "odd?" not in answer.text


def record(store, golden, name, lists, now):
    backend = TableBackend(name, lists)
    (run,) = run_backends([backend], golden, dataset="notes", top_k=10, repeats=0)
    scores = compare_runs(run, run, golden).candidate_scores
    return record_run(store.library.database, run, scores, golden, now=now)


def test_runs_are_listed_drawn_over_time_and_reported(client, store, tmp_path):
    assert "No run is recorded yet" in client.get("/runs").text
    queries = [
        GoldenQuery(id=f"q{n}", query=f"what is {n}?", expected=(Expected(path="a.md"),))
        for n in range(30)
    ]
    golden = GoldenSet("labelled", tuple(queries))
    worse = {query.id: ["b.md", "a.md"] for query in queries}
    better = {query.id: ["a.md", "b.md"] for query in queries}
    first = record(store, golden, "mine", worse, now=1_700_000_000)
    second = record(store, golden, "mine", better, now=1_700_086_400)
    page = client.get("/runs")
    assert page.text.rindex(second.id) < page.text.rindex(first.id)  # of the table
    assert "2023-11-15 22:13" in page.text
    assert f"2023-11-14 {first.id}: 0.631 [0.631, 0.631]; 2023-11-15 {second.id}: 1.0" in page.text
    chart = page.text.partition("<svg")[2].partition("</svg>")[0]
    assert "preserveAspectRatio" not in chart  # its letters keep their shape
    letters = re.findall(r'<text x="[\d.]+" y="([\d.]+)"[^>]*>([^<]+)<', chart)
    assert letters[:3] == [("134", "0"), ("74.0", "0.5"), ("14", "1")]
    assert [text for _, text in letters[3:]] == ["2023-11-14", "2023-11-15"]
    assert '<circle cx="290.0" cy="10.0" r="3"/>' in chart  # 1.000
    assert re.search(r'<line x1="290.0" y1="[\d.]+" x2="290.0" y2="10.0"/>', chart)
    chosen = {"before": first.id, "after": second.id}
    refused = client.get("/report", params=chosen)
    assert (refused.status_code, "no golden set here" in words(refused)) == (400, True)
    save_golden(tmp_path / "golden" / "other name.x.jsonl", queries)
    save_golden(tmp_path / "golden" / "labelled.jsonl", queries)
    report = client.get("/report", params=chosen)
    assert f"mine ({second.id}) is better than mine ({first.id})" in words(report)
    assert "script-src" not in report.headers["content-security-policy"]
    assert "default-src 'none'" in report.headers["content-security-policy"]
    assert client.get("/report").status_code in (400, 404)


def test_runs_can_be_reported_after_a_label_was_added_and_next_to_a_broken_set(
    client, store, tmp_path
):
    queries = [
        GoldenQuery(id=f"r{n}", query=f"who is {n}?", expected=(Expected(path="a.md"),))
        for n in range(30)
    ]
    golden = GoldenSet("later", tuple(queries))
    runs = [
        record(store, golden, name, {query.id: paths for query in queries}, now=at)
        for name, paths, at in (
            ("old", ["b.md", "a.md"], 1_700_000_000),
            ("new", ["a.md"], 1_700_000_001),
        )
    ]
    graded = add_judgement(queries[0], grade("b.md", 1, "ann"))
    save_golden(tmp_path / "golden" / "later.jsonl", [graded, *queries[1:]])
    (tmp_path / "golden" / "broken.jsonl").write_bytes(b'{"id": \xff')
    chosen = {"before": runs[0].id, "after": runs[1].id}
    report = client.get("/report", params=chosen)
    assert f"new ({runs[1].id}) is better than old ({runs[0].id})" in words(report)
    lists = {query.id: ["a.md"] for query in queries}
    relabelled = record(store, GoldenSet("later", (graded, *queries[1:])), "new", lists, now=2e9)
    charts = client.get("/runs").text.partition("<form")[0]
    assert relabelled.id not in charts  # another measure is no further point of the line


@pytest.mark.slow
def test_a_set_is_shown_with_the_dataset_that_has_its_documents(store, tmp_path, client):
    write(tmp_path / "other", z_dot_md="# Z\n\nAn other text.\n")
    Indexer(store.library).build(tmp_path / "other", "another")
    try:
        asked = [GoldenQuery(id="q", query="who?", expected=(Expected(path="a.md"),))]
        save_golden(tmp_path / "golden" / "here.jsonl", asked)
        page = client.get("/sets", params={"set": "here", "check": "1"})
        assert "<option selected>notes</option>" in page.text
        assert "no problem was found" in page.text
        links = re.findall(r'href="([^"]*mode=blind[^"]*)"', unescape(page.text))
        assert all("dataset=notes" in link for link in links)
        judged = client.get("/compare", params={"set": "here", "by": "ann"})
        assert "<option selected>notes</option>" in judged.text
        checked = client.get("/sets", params={"set": "here", "check": "1", "dataset": "another"})
        assert "no document 'a.md'" in words(checked)
    finally:
        Indexer(store.library).remove("another")


def test_a_long_set_is_shown_in_pages(client, tmp_path):
    asked = [GoldenQuery(id=f"q{n:03}", query=f"what is {n}?") for n in range(450)]
    save_golden(tmp_path / "golden" / "long.jsonl", asked)
    page = client.get("/sets", params={"set": "long", "from": "200"})
    assert "450 questions 201 to 400" in words(page)
    shown = set(re.findall(r"<bdi>(q\d+)</bdi>", page.text))
    assert (min(shown), max(shown), len(shown)) == ("q200", "q399", 200)
    assert "from=400" in page.text
    assert "from=0" in page.text
    for place in ("-1", "x", "9" * 30):
        assert client.get("/sets", params={"set": "long", "from": place}).status_code == 200
    last = words(client.get("/sets", params={"set": "long", "from": "999"}))
    assert "401 to 450 Previous" in last
    assert "51 to 250 Previous" in words(client.get("/sets", params={"set": "long", "from": "50"}))
