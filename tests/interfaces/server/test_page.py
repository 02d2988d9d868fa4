"""The page as HTML: what an address shows, who may see it, and what foreign text may not do."""

import re
from html import unescape
from unittest.mock import Mock

import pytest

from catalog.core.errors import OutOfTimeError
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.server.page import site
from catalog.interfaces.server.security import page_pass
from catalog.library.indexing import Indexer
from fakes import open_library, write
from stores import store_of
from tables import table

TOKEN = "a token of some length"
OWN = {"origin": "http://127.0.0.1:8180", "content-type": "application/x-www-form-urlencoded"}


def text_of(answer):
    """The words of a page, without its markup."""
    body = re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<head>.*?</head>", "", answer.text))
    return " ".join(unescape(body).split())


def links(answer, word):
    return [unescape(one) for one in re.findall(r'href="([^"]*)"', answer.text) if word in one]


def test_a_question_is_answered_with_places_marks_and_counts(asked, engine):
    answer = asked(engine, "GET", "/?q=rotate+keys")
    assert answer.status_code == 200
    told = text_of(answer)
    assert "of the best" in told
    assert "Keys keys.md" in told
    assert re.search(r"(exact|likely|possible) \d+ % 1 Rotating · lines 4-8 ", told)
    assert "<mark>Rotate</mark> the API <mark>keys</mark>" in answer.text
    assert re.search(r"Tag ops 1 security 1", told)
    assert links(answer, "type=md")
    assert links(answer, "year=")


def test_the_page_says_why_a_document_is_missing(asked, engine):
    assert "keys.md is result 1." in text_of(asked(engine, "GET", "/?q=rotate+keys&why=keys.md"))
    answer = asked(engine, "GET", "/?q=rotate+keys&type=md&why=bread.txt")
    assert "bread.txt: outside the scope or a filter." in text_of(answer)
    assert "Smallest change: without file_type=md" in text_of(answer)
    assert 'name="type" value="md"' in answer.text
    hostile = asked(engine, "GET", "/?q=rotate+keys&why=%3Cscript%3E1")
    assert "'<script>1'" in text_of(hostile)
    assert "<script>1" not in hostile.text


def engine_of(files, **settings):
    """An engine on a store of these files that no test changes."""
    return LocalEngine(open_library(store_of(files, **settings), **settings))


@pytest.fixture
def manual():
    """A document of three passages, between two other documents."""
    parts = "\n\n".join(f"## Part {n}\n\n{f'Oil the pump {n} times. ' * 12}" for n in range(3))
    files = {
        "notes/manual.md": f"---\ntags: [ops]\n---\n# Manual\n\n{parts}\n",
        "notes/pump.md": "# Pump\n\nA pump moves oil.\n",
        "notes/bread.txt": "Bread needs oil, flour and water.\n",
    }
    with engine_of(files, chunk_size=60, chunk_overlap=0) as engine:
        yield engine


def test_a_document_stands_once_with_headings_and_certainty_at_each_passage(asked, manual):
    page = asked(manual, "GET", "/?q=oil+the+pump")
    assert page.text.count("<h2><a") == len(
        set(re.findall(r"<h2><a.*?<bdi>(.*?)</bdi>", page.text))
    )
    passages = re.findall(
        r'class="sure (exact|likely|possible)".*?class="rank">(\d+)</span>(.*?)</p>', page.text
    )
    ranks = [int(rank) for _, rank, _ in passages]
    assert sorted(ranks) == [*range(1, len(ranks) + 1)]
    parts = [text for *_, text in passages if "Part" in text]
    assert {part for text in parts for part in re.findall(r"Part \d", text)} == {
        "Part 0", "Part 1", "Part 2",
    }  # fmt: skip
    assert [text.count('class="result"') for text in parts] == [0] + [1] * (len(parts) - 1)


def test_passages_that_hardly_match_are_folded_away_but_never_the_best(asked, manual, monkeypatch):
    monkeypatch.setattr("catalog.interfaces.server.page.search.HARDLY", 1.1)
    page = asked(manual, "GET", "/?q=oil+the+pump").text
    count = int(re.search(r"<summary>(\d+) more that hardly match</summary>", page)[1])
    folded = page.partition('<details class="weak">')[2].partition('<nav id="facets"')[0]
    assert folded.count('class="rank"') == count == page.count('class="rank"') - 1
    hidden = links(asked(manual, "GET", "/?q=oil+the+pump"), "doc=")[-1].partition("#")[0]
    assert '<details class="weak" open>' in asked(manual, "GET", hidden).text
    monkeypatch.setattr("catalog.interfaces.server.page.search.HARDLY", 0.0)
    assert "hardly match" not in asked(manual, "GET", "/?q=oil+the+pump").text


def test_numbers_of_facets_are_exact_or_say_of_what_they_are(asked, manual, monkeypatch):
    monkeypatch.setattr("catalog.interfaces.server.page.search.MOST", 1)
    listed = text_of(asked(manual, "GET", "/"))
    assert "Dataset notes 3 Type md 2 txt 1 " in listed  # of all, though one is listed
    assert "of the best" not in listed
    narrowed = text_of(asked(manual, "GET", "/?tag=ops"))
    assert re.search(r"Dataset notes Type md 1 Tag ops × Date \d{4} Order", narrowed)
    monkeypatch.setattr("catalog.interfaces.server.page.search.MOST", 100)
    found = text_of(asked(manual, "GET", "/?q=oil"))
    count = re.search(r"of the best (\d) passages found", found)[1]
    assert f"Numbers: of the best {count} passages. Dataset notes {count} " in found


def test_without_a_question_the_documents_are_listed(asked, engine):
    told = text_of(asked(engine, "GET", "/"))
    assert "3 documents, newest first" in told
    assert "guides/backup.md" in told


def test_an_address_narrows_and_offers_to_widen_again(asked, engine):
    answer = asked(engine, "GET", "/?q=the&tag=ops&type=md")
    assert "keys.md" in text_of(answer)
    assert "backup.md" not in text_of(answer)
    assert "./?q=the&type=md" in links(answer, "q=the")
    assert "./?q=the&tag=ops" in links(answer, "q=the")
    assert "Nothing found" in text_of(asked(engine, "GET", "/?q=rotate&before=1990"))


def test_a_result_opens_its_document_with_its_lines_marked(asked, engine):
    first = links(asked(engine, "GET", "/?q=rotate+keys"), "doc=")[0]
    answer = asked(engine, "GET", first.partition("#")[0])
    cited = re.findall(r'<p data-lines="8-8" class="cited best">(.*)</p>', answer.text)
    assert any("Rotate the API keys every ninety days" in line for line in cited)
    assert not any("tags:" in line for line in cited)
    assert answer.text.count('id="at"') == 1
    assert 'aria-current="true"' in answer.text


def test_the_lines_of_the_snippet_stand_out_of_a_long_passage(asked):
    lines = [f"Line {n} tells of nothing much today." for n in range(12)]
    lines[8] = "Rotate the keys at dawn."
    files = {"notes/long.txt": "Long\n\n" + "\n".join(lines) + "\n"}
    with engine_of(files, chunk_size=400) as engine:
        page = asked(engine, "GET", "/?q=rotate+keys&doc=notes:long.txt&first=1&last=14").text
    assert page.count('class="cited"') > 2
    assert re.search(r'class="cited best">.*Rotate the keys at dawn', page)
    assert not re.search(r'class="cited best">.*Line 0 ', page)


def test_markdown_is_rendered_with_its_cited_blocks_marked_and_links_that_stay(asked):
    text = (
        "---\ntags: [ops]\n---\n# Guide\n\n- Oil it.\n- Rotate the *keys*.\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "<script>alert(1)</script> [x](javascript:alert(2)) ![An owl](http://evil.example/o.png)\n\n"
        "[beside](../other%20one.md#part) [web](https://example.org/?a=1&b) [top](//evil.example)\n"
    )
    with engine_of({"notes/deep/guide.md": text}) as engine:
        page = asked(engine, "GET", "/?doc=notes:deep/guide.md&first=7&last=7").text
    shown = page.partition('<div class="rendered">')[2].partition("</div>")[0]
    assert "tags:" not in shown
    assert '<p data-lines="7-7" class="cited best" id="at">Rotate the <em>keys</em>.</p>' in shown
    assert shown.count("cited") == 1
    assert '<tr data-lines="11-11">' in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [x](javascript:alert(2)) An owl" in shown
    assert "<img" not in shown
    assert [unescape(one) for one in re.findall(r'href="([^"]*)"', shown)] == [
        "./?doc=notes%3Aother+one.md",
        "https://example.org/?a=1&b",
        "./?doc=notes%3A%2F%2Fevil.example",
    ]


@pytest.mark.slow
def test_a_very_long_paragraph_of_markdown_stays_plain_so_that_the_page_comes(asked):
    text = "# Long\n\n" + "[" * 200_000 + "\n\n- *short*\n"
    with engine_of({"notes/long.md": text}) as engine:
        page = asked(engine, "GET", "/?doc=notes:long.md").text
    assert "[" * 200_000 in page
    assert "<em>short</em>" in page


@pytest.mark.slow
def test_html_is_shown_in_a_frame_without_rights_below_its_cited_lines(asked, tmp_path):
    text = (
        "<!doctype html><title>Owl</title>\n<p>Owls fly.</p>\n<p>Rotate <b>keys</b>.</p>\n"
        "<IFRAME src=http://evil.example></IFRAME>\n"
    )
    write(tmp_path / "notes", owl_dot_html=text, owl_dot_md="# Owl\n\nOwls fly.\n")
    with LocalEngine(open_library(tmp_path / "home")) as engine:
        Indexer(engine.library).build(tmp_path / "notes", "notes")
        page = asked(engine, "GET", "/?doc=notes:owl.html&first=3&last=3").text
        frame = asked(engine, "GET", "/media?doc=notes:owl.html")
        (tmp_path / "notes" / "owl.html").unlink()
        gone = asked(engine, "GET", "/?doc=notes:owl.html").text
    above = text_of(Mock(text=page.partition('<div class="text')[2].partition("<iframe")[0]))
    assert "Rotate keys." in above
    assert "Owls fly" not in above
    assert '<iframe sandbox src="./media?doc=notes%3Aowl.html" title="Owl"></iframe>' in page
    policy = frame.headers["content-security-policy"]
    assert policy.startswith("sandbox; default-src 'none';")
    assert not re.search("script|allow-|http|\\*", policy)
    assert frame.headers["content-type"] == "text/html"  # the file names its own encoding
    assert (frame.text, "frame-src 'self'" in asked(engine, "GET", "/").headers[
        "content-security-policy"
    ]) == (text.replace("<IFRAME", "<no-IFRAME"), True)  # fmt: skip
    assert "<iframe" not in gone
    assert "Owls fly." in gone


def test_a_place_far_down_a_long_document_is_shown(asked, engine, monkeypatch):
    monkeypatch.setattr("catalog.interfaces.server.page.document._BYTES", 90)
    monkeypatch.setattr("catalog.interfaces.server.page.document._BEFORE", 1)
    answer = asked(engine, "GET", "/?doc=notes:keys.md&first=8&last=8")
    assert re.search(r'class="cited best" id="at">.*Rotate the API', answer.text)
    assert ">Keys</h1>" not in answer.text


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/?q=keys&dataset=nowhere", "nowhere"),
        ("/?q=keys&mode=magic", "mode"),
        ("/?q=keys&doc=notes:nothing.md", "nothing.md"),
        ("/?q=keys&after=tomorrow", "tomorrow"),
        ("/?q=keys&year=%C2%B2", "keys.md"),
        ("/?q=keys&year=" + "9" * 5000, "keys.md"),
        ("/?q=keys&" + "&".join(f"tag=t{n}" for n in range(900)), "no document has the tag"),
        ("/?q=keys&n=99999999999999999999&first=x&at=-1&unknown=1", "keys.md"),
        ("/?q=%00%ff&tag=%F0%9F%92%A9", "no document has the tag"),
    ],
)
def test_a_wrong_address_is_explained_on_the_page(asked, engine, address, words):
    answer = asked(engine, "GET", address)
    assert answer.status_code == 200  # it begins before the search
    assert words in text_of(answer)
    assert 'role="search"' in answer.text


@pytest.mark.slow
def test_the_start_page_offers_every_dataset_type_and_more_documents(asked):
    many = {f"many/n{at:02}.md": f"# Note {at}\n\nText.\n" for at in range(25)}
    with engine_of({"few/a.txt": "One text about bread.\n", **many}) as engine:
        page = asked(engine, "GET", "/")
        assert "26 documents, newest first" in text_of(page)
        assert page.text.count('class="result"') == 10
        facets = text_of(page).partition("Order and mode")[0]
        assert all(name in facets for name in ("few", "many 25", "md 25", "txt 1"))
        assert "n=20" in page.text
        assert asked(engine, "GET", "/?n=30").text.count('class="result"') == 26
        searched = text_of(asked(engine, "GET", "/?q=note&mode=lexical"))
        assert "few" in searched.partition("Order and mode")[0]


def test_a_very_long_document_is_shown_in_part(asked, engine, monkeypatch):
    monkeypatch.setattr("catalog.interfaces.server.page.document._LINES", 6)
    text = asked(engine, "GET", "/?doc=notes:keys.md").text
    assert "the first 6 lines are shown" in text
    assert "Rotate the API keys" not in text.partition('id="document"')[2]
    cited = asked(engine, "GET", "/?doc=notes:keys.md&first=8&last=8").text
    assert "Rotate the API keys" in cited


def test_a_page_whose_search_fails_late_is_still_whole(asked, engine, monkeypatch):
    for error in (OutOfTimeError("no answer within <1> second"), KeyError("keys")):
        failing = Mock(side_effect=error)
        monkeypatch.setattr("catalog.interfaces.server.page.site.search_view", failing)
        page = asked(engine, "GET", "/?q=keys")
        assert page.text.endswith("</html>")
        assert ("&lt;1&gt;" in page.text) == isinstance(error, OutOfTimeError)
        assert "an internal error" in page.text or isinstance(error, OutOfTimeError)


def test_other_methods_and_files_are_refused(asked, engine):
    assert asked(engine, "POST", "/").status_code == 405
    assert asked(engine, "GET", "/assets/site.py").status_code == 404
    assert asked(engine, "GET", "/assets/..%2fsite.py").status_code == 404
    assert asked(engine, "HEAD", "/").text == ""


def test_every_answer_forbids_scripts_frames_and_other_hosts(asked, engine):
    for path in ("/", "/login", "/assets/page.js", "/assets/nothing", "/?q=x&mode=magic"):
        headers = asked(engine, "GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"
    for path in ("/v1/search?query=keys", "/metrics"):  # nor can another site's page include them
        headers = asked(engine, "GET", path).headers
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"
    page = asked(engine, "GET", "/?q=keys").text
    assert not re.search(r"<script(?! src=)|style=|\son\w+=|https?://|<style", page)


@pytest.mark.parametrize("path", ["/", "/?q=keys", "/?doc=notes:keys.md", "/compare", "/sets"])
def test_a_page_leads_only_to_addresses_below_its_own_whatever_a_proxy_puts_above(
    asked, engine, path
):
    page = asked(engine, "GET", path).text
    found = re.findall(r'\s(?:href|src|action|formaction)="([^"]+)"', page)
    assert len(found) > 5
    assert not [one for one in found if not one.startswith(("./", "#"))]


@pytest.fixture(scope="module")
def hostile():
    text = (
        '---\ntags: ["<b onmouseover=alert(1)>", "\u202egpj.exe"]\n'
        'author: "</dd><script>alert(2)</script>"\n---\n'
        "# <img src=x onerror=alert(3)> \u202etitle\n\n"
        f"<script>document.title='owned'</script> rotate [x](javascript:alert(4)) {'k' * 10_000}\n"
    )
    with engine_of({"notes/<svg onload=alert(5)>.md": text}) as engine:
        yield engine


def test_hostile_titles_paths_metadata_and_passages_are_only_text(asked, hostile):
    address = "/?q=rotate+%3Cscript%3E&doc=notes:%3Csvg%20onload=alert(5)%3E.md&first=5&last=7"
    answer = asked(hostile, "GET", address)
    assert not re.search(r"<(?:img|b)[ >]|<[^>]*\son\w+=", answer.text)
    assert answer.text.count("<svg") == answer.text.count('<svg aria-hidden="true"')
    assert answer.text.count("<script") == 1
    assert "\u202e" not in answer.text
    told = text_of(answer)
    for part in ("<script>document.title='owned'", "onerror=alert(3)", "<svg onload=alert(5)>.md"):
        assert part in told
    assert not links(answer, "javascript:")
    assert "<b onmouseover=alert(1)>" in told
    assert "k" * 10_000 in answer.text


def test_with_a_token_a_browser_signs_in_and_out(asked, engine):
    serve = {"token": TOKEN}
    answer = asked(engine, "GET", "/?q=keys&tag=ops", serve)
    assert (answer.status_code, answer.text) == (303, "")
    assert answer.headers["location"] == "./login?next=/%3Fq%3Dkeys%26tag%3Dops"
    page = asked(engine, "GET", answer.headers["location"], serve)
    assert 'value="/?q=keys&amp;tag=ops"' in page.text
    form = f"next=%2F%3Fq%3Dkeys&token={TOKEN.replace(' ', '+')}"
    signed = asked(engine, "POST", "/login", serve, headers=OWN, content=form)
    assert (signed.status_code, signed.headers["location"]) == (303, "./?q=keys")
    cookie = signed.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie  # a link in a mail leads to the page
    assert TOKEN not in cookie
    own = {"cookie": cookie.partition(";")[0]}
    assert "keys.md" in asked(engine, "GET", "/?q=keys", serve, headers=own).text
    gone = asked(engine, "POST", "/logout", serve, headers={**OWN, **own})
    assert gone.headers["location"] == "./login"
    assert 'catalog_pass="";' in gone.headers["set-cookie"]


def test_behind_a_proxy_with_tls_the_cookie_is_secure(asked, engine):
    serve = {"token": TOKEN, "allowed_hosts": ("search.example",)}
    headers = {**OWN, "host": "search.example", "origin": "https://search.example"}
    form = f"token={TOKEN.replace(' ', '+')}"
    answer = asked(engine, "POST", "/login", serve, headers=headers, content=form)
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil", "/\n/x"])
def test_signing_in_leads_to_no_other_site(asked, engine, target):
    form = {"token": TOKEN, "next": target}
    headers = {"origin": OWN["origin"]}
    answer = asked(engine, "POST", "/login", {"token": TOKEN}, headers=headers, data=form)
    assert answer.headers["location"] == "./"


def test_a_wrong_token_or_cookie_signs_nobody_in(asked, engine):
    serve = {"token": TOKEN}
    wrong = asked(engine, "POST", "/login", serve, headers=OWN, content="token=wrong")
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
    for value in ("", TOKEN, page_pass("another token here")):
        headers = {"cookie": f"catalog_pass={value}"}
        assert asked(engine, "GET", "/", serve, headers=headers).status_code == 303
    twice = f"catalog_pass={page_pass(TOKEN)}"
    seen = asked(engine, "GET", "/", serve, headers={"cookie": twice})
    assert (seen.status_code, seen.headers["cache-control"]) == (200, "no-store")
    headers = {"cookie": f"{twice}; {twice}"}
    assert asked(engine, "GET", "/", serve, headers=headers).status_code == 303
    api = asked(engine, "GET", "/v1/status", serve, headers={"cookie": twice})
    assert api.status_code == 401  # the cookie is for the page alone


@table("headers")
def test_no_other_sites_page_may_write(asked, engine, headers):
    kind = {"content-type": OWN["content-type"]}
    answer = asked(
        engine, "POST", "/login", {"token": TOKEN}, headers={**kind, **headers},
        content=f"token={TOKEN.replace(' ', '+')}",
    )  # fmt: skip
    assert answer.status_code in (403, 415)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_to_the_page_but_not_use_it_in_the_background(asked, engine, site):
    paths = (
        "/?q=keys", "/compare?q=keys", "/sets.jsonl?set=a", "/v1/search?query=keys", "/metrics",
    )  # fmt: skip
    for mode, kind in (("no-cors", "image"), ("navigate", "iframe"), ("navigate", "object")):
        headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": kind}
        for path in paths:
            assert asked(engine, "GET", path, headers=headers).status_code == 403
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert asked(engine, "GET", "/?q=keys", headers=headers).status_code == 200
    early = {**headers, "sec-purpose": "prefetch;prerender"}
    assert asked(engine, "GET", "/?q=keys", headers=early).status_code == 403
    assert asked(engine, "POST", "/v1/search", headers=headers).status_code == 403
    assert asked(engine, "GET", "/sets.jsonl?set=a", headers=headers).status_code == 403


def test_pages_of_allowed_origins_may_call_the_api_but_not_read_the_page(asked, engine):
    serve = {"allowed_origins": ("http://app.example",)}
    headers = {"origin": "http://app.example", "sec-fetch-site": "cross-site"}
    api = asked(engine, "GET", "/v1/status", serve, headers=headers)
    assert api.headers["access-control-allow-origin"] == "http://app.example"
    page = asked(engine, "GET", "/?q=keys", serve, headers=headers)
    assert (page.status_code, "access-control-allow-origin" in page.headers) == (403, False)


def test_the_pages_own_files_are_small():
    names = [*site._ASSETS]
    assert sum(len(site._asset_bytes(name)[0]) for name in names) < 60_000
