"""The page in a real browser: typing, keys, history, another origin, and no script at all."""

import pytest

from catalog.core.settings import ServeSettings
from catalog.evaluation.golden import GoldenQuery, Judgement, Preference
from catalog.evaluation.golden_files import save_golden
from catalog.evaluation.judging import add_judgement
from catalog.interfaces.server.asgi import build_app
from catalog.interfaces.server.security import Address
from interfaces.server.browser import browser  # noqa: F401
from interfaces.server.conftest import listening
from tables import table

pytestmark = pytest.mark.slow
HERE = Address("127.0.0.1", 8180)


@pytest.fixture(scope="module")
def base(engine, tmp_path_factory):
    golden = tmp_path_factory.mktemp("golden")
    choice = {"left": "v1", "right": "v2", "preferred": "left", "mode": "blind", "by": "ann"}
    chosen = (Preference(**choice, at="2026-03-01T12:00:00Z"),)
    query = GoldenQuery(id="q1", query="rotate keys", preferences=chosen)
    for by, value in (("ann", 2), ("bob", 0)):
        judged = Judgement(path="keys.md", grade=value, by=by, at="2026-03-01T12:00:00Z")
        query = add_judgement(query, judged)
    save_golden(golden / "team.jsonl", [query])
    app = build_app(engine, HERE, ServeSettings(), page={"golden": golden})
    with listening(app) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
def page(browser):  # noqa: F811
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        page = context.new_page()
        problems = []
        page.on("console", lambda said: problems.append(said.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        yield page
        assert problems == []


def test_answers_come_while_one_types_and_every_state_has_its_address(page, base):
    page.goto(base)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    page.keyboard.type("rotate keys", delay=10)
    page.wait_for_url(f"{base}/?q=rotate+keys")
    page.wait_for_selector("mark:text('keys')")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#document .cited")
    assert "doc=notes%3Akeys.md" in page.url
    page.reload()
    assert "Rotate the API keys" in page.inner_text("#document")
    page.keyboard.press("Escape")
    page.wait_for_selector("#document", state="detached")
    page.wait_for_function("document.activeElement.matches('a.result')")
    page.click("#facets a:has-text('ops')")
    page.wait_for_selector("#facets a.chosen")
    assert page.url.endswith("tag=ops")
    page.wait_for_function("document.activeElement.matches('#facets a.chosen')")
    page.go_back()
    page.wait_for_selector("#facets a.chosen", state="detached")
    assert page.input_value("#q") == "rotate keys"


def test_the_first_result_is_eight_tab_stops_away_and_one_with_the_link_that_skips(page, base):
    page.goto(f"{base}/?q=rotate+keys")
    page.focus("a >> nth=0")  # the first stop of all
    assert page.evaluate("document.activeElement.innerText") == "Skip to results"
    stops = 1
    while not page.evaluate("document.activeElement.matches('a.result')"):
        page.keyboard.press("Tab")
        stops += 1
    assert stops <= 8
    page.focus("a >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_url("**#found")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('a.result')")


def test_the_one_status_stays_outside_main_and_says_how_many_were_found(page, base):
    page.goto(base)
    page.evaluate("window.status_of_page = document.querySelector('[role=status]')")
    page.fill("#q", "rotate keys")
    page.wait_for_selector("#status:has-text('found in')", state="attached")
    assert page.evaluate(
        "[...document.querySelectorAll('[role=status]')].every((one) => one === status_of_page)"
        " && status_of_page.isConnected && !status_of_page.closest('main')"
    )


def test_keys_and_half_words_of_an_input_method_are_left_to_it(page, base):
    page.goto(f"{base}/?q=keys")
    page.wait_for_selector("a.result")
    page.focus("#q")
    kept = page.evaluate(
        """['ArrowDown', 'ArrowUp', 'Escape'].map((key) => document.activeElement.dispatchEvent(
           new KeyboardEvent('keydown', {key, isComposing: true, bubbles: true, cancelable: true})
        ))"""
    )
    assert (kept, page.evaluate("document.activeElement.id")) == ([True] * 3, "q")
    page.evaluate("window.waits = 0; setTimeout = () => ++waits; 0")  # then the page would ask
    page.evaluate("q.dispatchEvent(new InputEvent('input', {isComposing: true}))")
    assert page.evaluate("waits") == 0
    page.evaluate("q.dispatchEvent(new CompositionEvent('compositionend'))")
    assert page.evaluate("waits") == 1


def test_a_slash_goes_to_the_box_and_is_typed_only_into_one_in_use(page, base):
    page.goto(base)
    page.wait_for_selector("#q:focus")
    page.keyboard.press("/")
    assert page.input_value("#q") == ""
    page.keyboard.type("/etc")
    assert page.input_value("#q") == "/etc"
    page.goto(f"{base}/?q=keys")
    page.wait_for_selector("#q:focus")
    page.focus("a.result >> nth=0")
    page.keyboard.press("/")
    assert page.input_value("#q") == "keys"
    page.keyboard.type("bread/")
    assert page.input_value("#q") == "bread/"


def test_on_a_narrow_screen_a_clicked_result_is_shown_at_its_lines(page, base):
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto(f"{base}/?q=rotate+keys")
    page.click("a.result >> nth=0")
    page.wait_for_selector("#document .cited")
    page.wait_for_function(
        "(() => { const at = document.getElementById('at').getBoundingClientRect();"
        " return at.top >= 0 && at.bottom <= innerHeight })()"
    )


def test_an_answer_to_an_older_question_never_replaces_a_newer_one(page, base):
    def answer_late(route):
        page.wait_for_timeout(600)
        route.continue_()

    page.goto(base)
    page.route("**/?q=bread", answer_late)
    page.fill("#q", "bread")
    page.wait_for_timeout(250)
    page.fill("#q", "midnight")
    page.wait_for_selector("#found:has-text('Backups run')")
    page.wait_for_timeout(700)
    assert page.url.endswith("q=midnight")
    assert "Backups run" in page.inner_text("#found")


def test_it_searches_and_reads_without_javascript(browser, base):  # noqa: F811
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(base)
        page.fill("#q", "rotate keys")
        page.press("#q", "Enter")
        page.click("a.result >> nth=0")
        assert "Rotate the API keys" in page.inner_text("#document .cited >> nth=-1")


def test_another_origin_reads_and_writes_nothing(browser, base, engine):  # noqa: F811
    async def foreign(scope, receive, send):
        head = {"type": "http.response.start", "status": 200}
        await send({**head, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": b"<p>another site</p>"})

    tries = """async (base) => {
      const read = (url, how) => fetch(url, how).then((r) => r.text()).catch(() => "refused");
      const framed = new Promise((done) => {
        const frame = document.createElement("iframe");
        frame.onload = () => { try { done(frame.contentDocument.body.innerText); }
                               catch { done("refused"); } };
        frame.src = base + "/?q=keys";
        document.body.append(frame);
      });
      const form = new URLSearchParams({token: "x"});
      const withCookies = {credentials: "include"};
      return [await read(base + "/?q=keys"), await read(base + "/?q=keys", withCookies),
              await read(base + "/logout", {method: "POST", body: form}),
              await framed || "refused"];
    }"""
    with listening(foreign) as other, browser.new_context() as context:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{other.port}/")
        assert page.evaluate(tries, base) == ["refused"] * 4
        answers = []
        page.on("response", lambda answer: answers.append(answer.status))
        page.evaluate(
            "(base) => { const f = document.createElement('form'); f.method = 'post';"
            " f.action = base + '/logout'; document.body.append(f); f.submit(); }",
            base,
        )
        page.wait_for_timeout(300)
        assert 403 in answers


@table("path")
def test_a_page_is_accessible_and_fits_every_width_light_and_dark(browser, base, path):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        page = context.new_page()
        page.goto(base + path)
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = axe.run(page).response["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
        for width in (1400, 800, 360):
            page.set_viewport_size({"width": width, "height": 900})
            root = "document.documentElement"
            assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth"), width


def test_the_page_prints_results_without_its_controls(page, base):
    page.goto(f"{base}/?q=rotate+keys")
    page.emulate_media(media="print")
    assert page.is_visible("text=Rotate the API")
    assert page.is_visible("#q")  # the question
    assert not page.is_visible("#ask button")
    assert not page.is_visible("#facets")
