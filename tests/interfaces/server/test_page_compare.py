"""Two searches side by side on the page, and what people judge of them."""

import re
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from threading import Event

import pytest
from starlette.testclient import TestClient

from catalog.core.scope import asked_as
from catalog.core.settings import ServeSettings
from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation.backends import Backends
from catalog.evaluation.golden import GoldenQuery
from catalog.evaluation.golden_files import read_golden, save_golden
from catalog.evaluation.judging import preference_tests
from catalog.interfaces.server.asgi import build_app
from catalog.interfaces.server.page.bench import Bench
from catalog.interfaces.server.page.compare import queue
from catalog.interfaces.server.security import Address
from interfaces.server import compared
from interfaces.server.browser import browser  # noqa: F401
from interfaces.server.conftest import listening
from tables import table

NAMES = ("good", "bad", "failing", "slow")
GOOD, BAD, FAILING, SLOW = (f"interfaces.server.compared:{name}" for name in NAMES)
PAIR = {"a": BAD, "b": GOOD, "set": "team", "by": "ann"}
HERE = Address("127.0.0.1", 8180)
ORIGIN = {"origin": "http://127.0.0.1:8180"}


@pytest.fixture
def app(engine, tmp_path):
    page = {"compared": [GOOD, BAD, FAILING, SLOW], "golden": tmp_path}
    return build_app(engine, HERE, ServeSettings(), page=page)


@pytest.fixture
def client(app):
    return TestClient(app, base_url="http://127.0.0.1:8180", follow_redirects=True)


@pytest.fixture
def team(tmp_path):
    """A golden set of some questions; call it to read the set again."""
    file = tmp_path / "team.jsonl"
    save_golden(file, [GoldenQuery(id=f"q{n}", query=f"question {n}?") for n in range(4)])
    return lambda: read_golden(file).queries


def form_of(answer):
    return re.search(r'name="shown" value="([^"]+)"', answer.text)[1]


def judge(client, choice, **asked):
    """Answer the question that is shown; return the page that follows."""
    shown = client.get("/compare", params=asked)
    return client.post(
        "/compare", data={"shown": form_of(shown), "preferred": choice}, headers=ORIGIN
    )


def main_of(answer):
    """The page without the form that chooses what to compare."""
    return unescape(re.sub(r'(?s)<form id="pair".*?</form>', "", answer.text))


def test_open_lists_show_names_what_only_one_found_and_what_moved(client):
    page = main_of(client.get("/compare", params={"q": "rotate", "a": BAD, "b": GOOD}))
    assert page.index(BAD) < page.index(GOOD)
    assert len(re.findall("only here", page)) == 2
    assert '<line x1="0" y1="1.5" x2="10" y2="1.5"/>' in page
    assert "<button name" not in page  # without a set and a name nothing is kept


def test_our_own_searches_explain_their_hits_and_stages(client):
    page = main_of(client.get("/compare", params={"q": "rotate keys", "a": "lexical", "b": "v2"}))
    assert "lexical (bm25), rank 1" in page
    told = re.sub(r"<[^>]*>|\s+", " ", page)
    assert re.search(r"keys\.md +Rotating|keys\.md +Keys > Rotating", told)
    assert re.search(r"lines \d+–\d+ +(exact|likely|possible) ", told)
    assert re.search(r"fuse [\d.]+ ms", page)


def test_documents_that_differ_are_listed_with_their_ranks_by_leg(client):
    answer = client.get("/compare", params={"q": "rotate keys", "a": BAD, "b": GOOD})
    told = re.sub(r"<[^>]*>|\s+", " ", main_of(answer).partition("What differs")[2])
    told = re.sub(" +", " ", told)
    assert re.search(r"keys\.md – 1 1 1 ", told)
    assert "guides/backup.md" not in told  # both have it at rank 2


@pytest.mark.slow
def test_blind_lists_hide_names_and_change_sides(client, team):
    orders = set()
    for _ in range(30):
        page = main_of(client.get("/compare", params={**PAIR, "mode": "blind"}))
        told = (
            r"compared:|lexical|rank 1|\d ms|What differs|Rotating<|lines \d|exact|likely|possible"
        )
        assert not re.search(told, page)
        orders.add(page.index("keys.md") < page.index("bread.txt"))
    assert orders == {True, False}


@pytest.mark.parametrize("is_reversed", [0, 1])
def test_a_blind_choice_counts_for_the_search_that_stood_there(
    client, team, monkeypatch, is_reversed
):
    monkeypatch.setattr("secrets.randbelow", lambda _: is_reversed)
    judge(client, "left", **PAIR, mode="blind", id="q2")
    (preference,) = team()[2].preferences
    assert preference.winner == (GOOD if is_reversed else BAD)
    assert (preference.by, preference.mode) == ("ann", "blind")
    assert {preference.left, preference.right} == {GOOD, BAD}


def test_question_after_question_comes_until_none_is_left(client, team):
    page = client.get("/compare", params={**PAIR, "mode": "blind"})
    for number in range(4):
        assert f"{number} of 4 questions judged" in page.text
        data = {"shown": form_of(page), "preferred": "equal"}
        page = client.post("/compare", data=data, headers=ORIGIN)
    assert "No question of this set is left to judge" in page.text
    (test,) = preference_tests(team())
    assert (test.test.ties, test.people) == (4, {"ann": 4})
    assert "0 of 4" in client.get("/compare", params={**PAIR, "mode": "blind", "by": "bob"}).text
    back = client.get("/compare", params={**PAIR, "mode": "blind", "id": "q1"})
    assert "question 1?" in back.text


@pytest.mark.slow
def test_enough_blind_choices_decide_and_the_page_says_so(client, tmp_path):
    save_golden(tmp_path / "team.jsonl", [GoldenQuery(id=f"q{n}", query=f"{n}?") for n in range(9)])
    page = client.get("/compare", params={**PAIR, "mode": "blind"})
    for _ in range(9):
        is_left = page.text.index("keys.md") < page.text.index("bread.txt")
        data = {"shown": form_of(page), "preferred": "left" if is_left else "right"}
        page = client.post("/compare", data=data, headers=ORIGIN)
    assert "9 of 9 questions judged; it is decided, you may stop" in page.text
    (test,) = preference_tests(read_golden(tmp_path / "team.jsonl").queries)
    told = re.sub(r"<[^>]*>|\s+", " ", unescape(client.get("/sets", params={"set": "team"}).text))
    assert f"{GOOD} is preferred to {BAD}, decided after {test.test.decided_after}" in told


def test_questions_whose_lists_differ_and_are_unjudged_come_first(client, team, tmp_path):
    equal = {"a": GOOD, "b": "lexical"}
    queries = [
        GoldenQuery(id="same", query="backups keys rotate"),
        GoldenQuery(id="other", query="flour"),
    ]
    save_golden(tmp_path / "team.jsonl", queries)
    page = client.get("/compare", params={**PAIR, **equal})
    assert '<h2 class="question"><bdi>flour' in page.text


def test_of_questions_with_equal_lists_those_come_first_on_which_the_legs_disagree():
    def ranking(*paths):
        return Ranking(tuple(map(RankedHit, paths)))

    lists = {
        ("lexical", "agreed"): ranking("a", "b"),
        ("vector", "agreed"): ranking("b", "a"),
        ("lexical", "disputed"): ranking("a", "b"),
        ("vector", "disputed"): ranking("c", "d"),
    }

    class Listed(Bench):
        def __init__(self):
            pass

        def rank(self, spec, dataset, query):
            return lists.get((spec, query.query), ranking("a")), "", ""

    left = [GoldenQuery(id=text, query=text) for text in ("agreed", "disputed")]
    asked = {"a": "v1", "b": "v2", "dataset": "notes", "mode": "blind"}
    assert [one.id for one in queue(Listed(), left, asked)] == ["disputed", "agreed"]


def test_a_second_person_first_gets_what_nobody_has_judged(client, team):
    for _ in range(2):
        judge(client, "left", **PAIR, mode="blind")
    judged = {one.id for one in team() if one.preferences}
    page = client.get("/compare", params={**PAIR, "mode": "blind", "by": "bob"})
    assert "0 of 4 questions judged, 2 more by others" in page.text
    for _ in range(2):
        judge(client, "left", **{**PAIR, "by": "bob"}, mode="blind")
    by_bob = {one.id for one in team() if any(it.by == "bob" for it in one.preferences)}
    assert (len(judged), len(by_bob), judged & by_bob) == (2, 2, set())


def test_a_typed_question_is_never_taken_for_another_one_of_the_set(client, tmp_path):
    save_golden(tmp_path / "team.jsonl", [GoldenQuery(id="new", query="an old question")])
    judge(client, "left", **PAIR, q="a typed question")
    old, typed = read_golden(tmp_path / "team.jsonl").queries
    assert (old.preferences, typed.query, len(typed.preferences)) == ((), "a typed question", 1)


def test_a_question_that_was_changed_meanwhile_is_not_judged(client, team, tmp_path):
    page = client.get("/compare", params={**PAIR, "id": "q0"})
    changed = [one.model_copy(update={"query": "something else"}) for one in team()]
    save_golden(tmp_path / "team.jsonl", changed)
    data = {"shown": form_of(page), "preferred": "left"}
    answer = client.post("/compare", data=data, headers=ORIGIN)
    assert (answer.status_code, "q0 was changed since" in answer.text) == (400, True)
    assert not any(one.preferences for one in team())


def test_a_question_that_was_removed_meanwhile_does_not_come_back(client, team, tmp_path):
    page = client.get("/compare", params={**PAIR, "id": "q0"})
    save_golden(tmp_path / "team.jsonl", team()[1:])
    data = {"shown": form_of(page), "preferred": "left"}
    answer = client.post("/compare", data=data, headers=ORIGIN)
    assert (answer.status_code, "q0 was removed since" in answer.text) == (400, True)
    assert len(team()) == 3


def test_after_a_restart_the_way_leads_back_to_the_same_questions(client, team):
    page = client.get("/compare", params={**PAIR, "mode": "blind"})
    back = re.search(r'name="back" value="([^"]+)"', page.text)[1]
    data = {"shown": "of another server", "preferred": "left", "back": unescape(back)}
    answer = client.post("/compare", data=data, headers=ORIGIN)
    assert (answer.status_code, "data-back" in answer.text) == (400, False)
    assert f'href=".{back}"' in answer.text
    assert "by=ann" in back
    data["back"] = "//evil.example/"
    assert "evil" not in client.post("/compare", data=data, headers=ORIGIN).text


def test_who_grades_without_a_name_is_asked_for_it(client, team):
    page = client.get("/grade", params={**PAIR, "by": "", "id": "q1"})
    assert '<input name="by" required' in page.text
    paths = re.findall(r'name="path.(\d)" value="([^"]+)"', page.text)
    grades = {f"path.{at}": path for at, path in paths} | {"grade.0": "2"}
    data = {"shown": form_of(page), "by": "ann", **grades}
    client.post("/grade", data=data, headers=ORIGIN)
    assert [one.by for one in team()[1].judgements] == ["ann"]


@table("changed, told")
def test_what_cannot_be_a_grade_is_refused(client, team, changed, told):
    page = client.get("/grade", params={**PAIR, "id": "q1"})
    paths = re.findall(r'name="path.(\d)" value="([^"]+)"', page.text)
    fields = {f"path.{at}": path for at, path in paths} | {"grade.0": "2"} | changed
    answer = client.post("/grade", data={"shown": form_of(page), **fields}, headers=ORIGIN)
    assert (answer.status_code, told in answer.text) == (400, True)
    assert not team()[1].judgements


def test_words_of_an_answer_may_have_other_white_space(client, team):
    page = client.get("/grade", params={**PAIR, "id": "q1"})
    (at,) = re.findall(r'name="path.(\d)" value="keys.md"', page.text)
    fields = {f"path.{at}": "keys.md", f"grade.{at}": "3", f"span.{at}": "Rotating  Rotate the"}
    client.post("/grade", data={"shown": form_of(page), **fields}, headers=ORIGIN)
    assert team()[1].expected[0].span.text == "Rotating\n\nRotate the"


class Building:
    """A search that is made ready for each state of a dataset when the test says so."""

    def __init__(self):
        self.half, self.go_on, self.ready = Event(), Event(), []

    def prepare(self, dataset, progress):
        progress.start(200)
        progress.advance(100, "half of it")
        self.half.set()
        assert self.go_on.wait(60)
        self.ready.append(dataset)

    def search(self, query, *, dataset, top_k):
        return Ranking((RankedHit(f"version {len(self.ready)}.md"),))


@pytest.fixture
def building(monkeypatch):
    monkeypatch.setattr("catalog.interfaces.server.page.bench._READY_SECONDS", 0.05)
    search, load = Building(), Backends.load
    monkeypatch.setattr(
        Backends, "load", lambda self, spec: search if spec == GOOD else load(self, spec)
    )
    yield search
    search.go_on.set()


def poll(client, **asked):
    """Ask as the page does, until nothing waits."""
    for _ in range(600):
        page = client.get("/compare", params=asked)
        if 'id="waits"' not in page.text:
            return page
        Event().wait(0.05)
    raise AssertionError("it is never ready")


def test_opening_the_page_begins_to_make_both_searches_ready_and_shows_how_far(client, building):
    page = client.get("/compare", params={"a": GOOD, "b": GOOD})
    assert (page.status_code, building.half.wait(60)) == (200, True)
    page = client.get("/compare", params={"a": GOOD, "b": GOOD, "q": "x"})
    assert page.status_code == 200
    assert re.search(r'<progress [^>]*max="200" value="100.0"></progress> 50 %', page.text)
    assert "data-again" in page.text
    assert "try again" not in page.text
    building.go_on.set()
    assert "version 1.md" in poll(client, a=GOOD, b=GOOD, q="x").text
    assert len(building.ready) == 1


def test_after_an_edit_the_old_index_answers_says_from_when_and_judging_waits(
    client, team, building, monkeypatch
):
    asked = {"a": GOOD, "b": "lexical", "set": "team", "by": "ann", "id": "q1"}
    building.go_on.set()
    before = poll(client, **asked)
    assert 'name="preferred"' in before.text
    building.go_on.clear()
    monkeypatch.setattr("catalog.interfaces.server.page.bench.read_stamp", lambda *_: "edited")
    page = client.get("/compare", params=asked)
    assert page.status_code == 200
    assert "version 1.md" in page.text
    assert re.search(r"answers from the index of \d{4}-\d\d-\d\d \d\d:\d\d UTC", page.text)
    assert 'name="preferred"' not in page.text
    building.go_on.set()
    after = poll(client, **asked)
    assert "version 2.md" in after.text
    assert 'name="preferred"' in after.text


def test_a_search_that_cannot_be_made_ready_is_tried_again(client, monkeypatch):
    tries = []

    def load(self, spec):
        tries.append(spec)
        raise TimeoutError("no index today")

    monkeypatch.setattr(Backends, "load", load)
    for count in (1, 2):
        page = client.get("/compare", params={"q": "x", "a": GOOD, "b": GOOD, "dataset": "notes"})
        assert "TimeoutError: no index today" in page.text
        assert tries.count(GOOD) == 2 * count


def test_a_typed_question_joins_the_set_when_it_is_judged(client, team):
    judge(client, "right", **PAIR, q="how do I bake?")
    assert [query.id for query in team()] == ["q0", "q1", "q2", "q3", "q005"]
    judge(client, "left", **PAIR, q="how do I bake?")
    (preference,) = team()[-1].preferences
    assert preference.preferred == "left"


def test_an_interleaved_list_is_judged_by_what_is_useful(client, team):
    asked = {**PAIR, "mode": "interleaved", "id": "q0"}
    page = client.get("/compare", params=asked)
    assert "compared:" not in main_of(page)
    paths = re.findall(r"<bdi>([^<]*\.(?:md|txt))</bdi>", page.text)
    assert sorted(paths) == ["bread.txt", "guides/backup.md", "keys.md"]
    data = {"shown": form_of(page), "preferred": "", "useful": [str(paths.index("keys.md"))]}
    client.post("/compare", data=data, headers=ORIGIN)
    (preference,) = team()[0].preferences
    assert (preference.winner, preference.mode) == (GOOD, "interleaved")


def test_grades_are_kept_with_who_gave_them_and_what_was_seen(client, team):
    asked = {**PAIR, "id": "q1", "mode": "blind"}
    page = client.get("/grade", params=asked)
    paths = re.findall(r'name="path.\d" value="([^"]*)"', page.text)
    grades = {f"path.{n}": path for n, path in enumerate(paths)}
    at = paths.index("keys.md")
    grades |= {f"grade.{at}": "3", f"span.{at}": "Rotate the API keys", "grade.9": "1"}
    after = client.post("/grade", data={"shown": form_of(page), **grades}, headers=ORIGIN)
    assert "back to q1" in after.text
    (judgement,) = team()[1].judgements
    assert (judgement.path, judgement.grade, judgement.by) == ("keys.md", 3, "ann")
    assert set(judgement.seen) == {GOOD, BAD}
    assert team()[1].expected[0].span.text == "Rotate the API keys"
    again = client.get("/grade", params=asked).text
    assert f'name="grade.{at}" value="3" checked' in again


def test_the_sets_grades_are_shown_to_who_grades_but_in_blind_mode_after_the_choice(client, team):
    page = client.get("/grade", params={**PAIR, "id": "q1"})
    paths = re.findall(r'name="path.\d" value="([^"]*)"', page.text)
    grades = {f"path.{n}": path for n, path in enumerate(paths)}
    grades |= {f"grade.{paths.index('keys.md')}": "3"}
    client.post("/grade", data={"shown": form_of(page), **grades}, headers=ORIGIN)
    bob = {**PAIR, "id": "q1", "by": "bob"}
    page = client.get("/grade", params=bob).text
    assert page.count("grade 3 in the set") == 1
    assert "checked" not in page
    blind = {**bob, "mode": "blind"}
    assert "in the set" not in client.get("/grade", params=blind).text
    judge(client, "left", **blind)
    assert "grade 3 in the set" in client.get("/grade", params=blind).text


@pytest.mark.parametrize("path", ["/compare", "/sets"])
def test_who_has_no_golden_set_gets_a_first_question_to_judge(client, path, tmp_path):
    page = client.get(path, params={"a": GOOD, "b": BAD} if path == "/compare" else None)
    form = page.text.partition('<section class="start">')[2].partition("</form>")[0]
    assert "plain LlamaIndex search" in form
    assert '<form action="./compare"' in form
    sent = dict(re.findall(r'<input name="(\w+)" value="(\w+)"', form))
    sent |= dict(re.findall(r'<button name="(mode)" value="(blind)"', form))
    page = client.get("/compare", params={**sent, "q": "rotate?", "by": "ann", "a": GOOD, "b": BAD})
    data = {"shown": form_of(page), "preferred": "left"}
    client.post("/compare", data=data, headers=ORIGIN)
    (query,) = read_golden(tmp_path / "first.jsonl").queries
    assert (query.query, query.preferences[0].mode) == ("rotate?", "blind")


def test_who_asks_a_search_that_is_busy_is_told_to_try_again(client, team, monkeypatch):
    monkeypatch.setattr("catalog.interfaces.server.page.bench._WAIT_SECONDS", 0.1)
    monkeypatch.setattr(Bench, "waits", lambda *_: {})  # as if all had been asked before
    asked = {**PAIR, "a": SLOW, "q": "x"}
    with ThreadPoolExecutor() as pool:
        first = pool.submit(client.get, "/compare", params=asked)
        try:
            assert compared.STARTED.wait(20)
            answer = client.get("/compare", params={**asked, "q": "y"})
        finally:
            compared.GO_ON.set()
        assert first.result().status_code == 200
    assert answer.status_code == 503
    assert "is busy" in answer.text


def test_a_search_that_fails_says_so_and_cannot_be_judged(client, team):
    page = client.get("/compare", params={**PAIR, "a": FAILING})
    assert "ValueError: &lt;b&gt;out of order" in page.text
    assert 'name="preferred"' not in page.text


@table("asked, words")
def test_a_wrong_comparison_is_explained(client, team, asked, words):
    page = client.get("/compare", params={**PAIR, "q": "x", **asked})
    assert page.status_code < 500
    assert words in unescape(page.text)
    assert "root:" not in page.text


def test_a_form_that_nobody_was_shown_changes_nothing(client, team):
    data = {"shown": "made up", "preferred": "left"}
    answer = client.post("/compare", data=data, headers=ORIGIN)
    assert (answer.status_code, "judge again" in answer.text) == (400, True)
    page = client.get("/compare", params=PAIR)
    data = {"shown": form_of(page), "preferred": "v2"}
    assert client.post("/compare", data=data, headers=ORIGIN).status_code == 400
    assert not any(query.preferences for query in team())


@pytest.mark.parametrize("path", ["/compare", "/grade", "/sets"])
def test_no_other_sites_page_may_judge(client, team, path):
    data = {"shown": form_of(client.get("/compare", params=PAIR)), "preferred": "left"}
    for headers in ({}, {"origin": "http://127.0.0.1:9"}, {**ORIGIN, "sec-fetch-site": "none"}):
        assert client.post(path, data=data, headers=headers).status_code == 403
    assert not any(query.preferences for query in team())


@pytest.mark.parametrize("path", ["/compare", "/grade"])
def test_a_role_may_not_compare_since_other_searches_know_no_roles(client, team, path):
    data = {"shown": form_of(client.get("/compare", params=PAIR)), "preferred": "left"}
    before = len(compared.CALLS)
    with asked_as("guest"):
        read = client.get(path, params={**PAIR, "q": "secret"})
        written = client.post(path, data=data, headers=ORIGIN)
        assert not re.search("Compare</a>|Golden sets</a>|Runs</a>", client.get("/").text)
    assert "Compare</a>" in client.get("/").text
    assert (read.status_code, written.status_code) == (400, 400)
    assert "keys.md" not in read.text
    assert len(compared.CALLS) == before
    assert not any(query.preferences for query in team())


@pytest.mark.slow
def test_a_person_judges_with_one_key_each(app, browser, team):  # noqa: F811
    with listening(app) as server, browser.new_context() as context:
        page = context.new_page()
        page.goto(
            f"http://127.0.0.1:{server.port}/compare?mode=blind&set=team&by=ann&a={BAD}&b={GOOD}"
        )
        for number, key in enumerate("1234"):
            page.wait_for_selector(f".told:has-text('{number} of 4')")
            page.keyboard.press(key)
        page.wait_for_selector("text=No question of this set is left")
    chosen = [one.preferred for query in team() for one in query.preferences]
    assert sorted(chosen) == ["equal", "left", "neither", "right"]
