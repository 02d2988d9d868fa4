"""No verb, edge or tool shows a role what it may not see, whoever opened the session."""

import json
import shutil

import pytest
from starlette.testclient import TestClient

from answers.conftest import ROLES
from catalog.core.errors import CatalogError, ConfigError, InputError
from catalog.core.scope import asked_as
from catalog.core.settings import AnswerSettings, ServeSettings
from catalog.interfaces.calls import VERBS, LocalEngine
from catalog.interfaces.mcp import instructions
from catalog.interfaces.server.asgi import build_app
from catalog.interfaces.server.security import Address
from catalog.interfaces.terminal import Form, render
from catalog.interfaces.tools import TOOLS
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from fakes import open_library, write

WRITER = "scripted:write"  # a language model

CANARY = "canary"  # in the name, title, tags and text of what a guest may not see
HERE = Address("127.0.0.1", 8180)
GUEST, LEAD = "the token of guests", "the token of a lead"
SERVE = ServeSettings(role_tokens=(f"guest: {GUEST}", f"lead: {LEAD}"))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aviary")
    hidden = (
        "---\nconfidentiality: internal\ntags: [canary]\ntitle: The canary\nowner: canary\n---\n"
    )
    write(
        folder / "notes",
        open_dot_md="---\nconfidentiality: public\n---\n# Birds\n\nBirds sing in the morning.\n",
        canary_dot_md=f"{hidden}# Canary song\n\nThe canary sings in the morning in the mine.\n",
        canary__two_dot_md=f"{hidden}The second canary sings in the evening.\n",
    )
    lines = [
        {
            "id": "bird",
            "text": "A bird of the list.",
            "title": "Listed",
            "confidentiality": "public",
        },
        {
            "id": "canary-1",
            "text": "A canary of the list.",
            "title": "canary",
            "confidentiality": "internal",
        },
    ]
    records = folder / "notes" / "list.jsonl"
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with open_library(folder / "home") as library:
        Indexer(library).build(folder / "notes", "notes")
    return folder / "home"


def engine_of(home, **answers):
    plain = open_library(home)
    settings = AnswerSettings(roles=ROLES, tool=True, **answers)
    opened = plain.settings.model_copy(update={"answers": settings})
    model = plain.model
    plain.close()
    return LocalEngine(Library(opened, model=model))


@pytest.fixture(scope="module")
def engine(home):
    with engine_of(home) as opened:
        yield opened


@pytest.fixture(scope="module")
def bound(home):
    with engine_of(home, role="guest") as opened:
        yield opened


ASKED = [
    ("search", {"query": "birds sing in the morning"}),
    ("search", {"query": "mine", "mode": "lexical"}),
    ("search", {"query": "sings", "mode": "vector", "explain": True}),
    ("search", {"query": "sings", "docs": ["*.md"]}),
    ("search", {"query": "sings", "name": "can"}),
    ("search", {"query": "sings", "filters": ["owner!=x"]}),
    ("ask", {"question": "Where does it sing in the morning?"}),
    ("generate", {"kind": "workflow", "topic": "sing in the morning", "model": WRITER}),
    ("get", {"reference": "open.md"}),
    ("get", {"reference": "list.jsonl:1-2"}),
    ("get", {"reference": "canar.md"}),
    ("multi_get", {"patterns": ["**"]}),
    ("multi_get", {"patterns": ["list.jsonl"]}),
    ("browse", {}),
    ("browse", {"query": "morning"}),
    ("browse", {"containing": ["sings"]}),
    ("browse", {"name": "cana"}),
    ("browse", {"tags": ["canar"]}),
    ("browse", {"sort": "modified"}),
]


def said(engine, verb, arguments):
    """What a verb says, errors included, without what was asked."""
    try:
        answer = engine.ask(verb, arguments)
    except CatalogError as error:
        return f"{type(error).__name__}: {error}"
    return json.dumps({name: answer[name] for name in answer if name not in ("query", "question")})


@pytest.mark.parametrize(("verb", "arguments"), ASKED)
def test_no_verb_shows_a_role_what_it_may_not_see(engine, verb, arguments):
    assert CANARY not in said(engine, verb, {**arguments, "role": "guest"}).casefold()


@pytest.mark.parametrize(("verb", "arguments"), ASKED)
def test_a_bound_process_shows_no_more_to_a_caller_that_names_another_role(bound, verb, arguments):
    for role in (None, "guest", "lead"):
        assert CANARY not in said(bound, verb, {**arguments, "role": role}).casefold()


def test_the_questions_would_show_it_to_who_may_see_it(engine):
    shown = [CANARY in said(engine, *asked).casefold() for asked in ASKED]
    assert sum(shown) >= len(ASKED) - 2  # all but those of one open document


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_takes_a_role_and_refuses_an_unknown_one(engine, verb):
    needed = {
        "search": {"query": "x"},
        "ask": {"question": "x"},
        "generate": {"kind": "workflow", "topic": "x", "model": WRITER},
        "get": {"reference": "open.md"},
        "multi_get": {"patterns": ["*"]},
    }
    with pytest.raises(InputError, match="no role 'boss'"):
        engine.ask(verb, {**needed.get(verb, {}), "role": "boss"})


def test_hidden_and_missing_documents_cannot_be_distinguished(engine):
    messages = []
    for name in ("canary.md", "cynary.md"):
        with pytest.raises(CatalogError) as caught:
            engine.ask("get", {"reference": name, "role": "guest"})
        messages.append(str(caught.value).replace(name, "NAME"))
    assert messages[0] == messages[1]


def test_status_counts_what_a_role_sees(engine, bound):
    counted = [
        (one["documents"], one["chunks"])
        for asked in (engine.ask("status", {"role": "guest"}), bound.ask("status", {}))
        for one in asked["datasets"]
    ]
    assert counted == [(2, 2), (2, 2)]
    assert engine.ask("status", {})["datasets"][0]["documents"] == 5


@pytest.fixture(scope="module")
def aviary(home, tmp_path_factory):
    """The same store, and in it a dataset of hidden documents alone."""
    folder = tmp_path_factory.mktemp("hidden")
    copy = shutil.copytree(home, folder / "home")
    write(folder / "x", x_dot_md="---\nconfidentiality: internal\n---\nA canary alone.\n")
    with open_library(copy) as library:
        Indexer(library).build(folder / "x", "canaryset")
    return copy


ASKED_OF_HIDDEN = [
    *[
        (verb, {**arguments, "dataset": name})
        for name in ("canaryset", "canaryse", ["canaryset", "notes"])
        for verb, arguments in (
            ("search", {"query": "alone"}),
            ("ask", {"question": "who is alone?"}),
            ("generate", {"kind": "workflow", "topic": "alone", "model": WRITER}),
            ("get", {"reference": "x.md"}),
            ("multi_get", {"patterns": ["*"]}),
            ("browse", {}),
        )
    ],
    ("get", {"reference": "x.md"}),
    ("search", {"query": "sings"}),
    ("search", {"query": "sings", "compare_with_v1": True}),
    ("browse", {}),
    ("status", {}),
]


@pytest.mark.parametrize(("verb", "arguments"), ASKED_OF_HIDDEN)
def test_a_dataset_of_hidden_documents_does_not_exist_for_a_role(aviary, verb, arguments):
    with engine_of(aviary, role="guest") as bound, engine_of(aviary) as free:
        for opened, role in ((bound, None), (bound, "lead"), (free, "guest")):
            told = said(opened, verb, {**arguments, "role": role})
            for name in ("canaryset", "canaryse"):  # as it was asked
                asked = arguments.get("dataset")
                told = told.replace(f"no dataset {name!r}", "") if name in str(asked) else told
            assert CANARY not in told.casefold()
        assert "canaryset" in said(free, "status", {})


def test_instructions_name_datasets_that_all_roles_of_tokens_see(aviary):
    with engine_of(aviary) as opened:
        assert "canaryset" in instructions(opened)
        assert "canaryset" in instructions(opened, ["lead"])
        told = instructions(opened, ["lead", "guest"])
    assert "notes" in told
    assert CANARY not in told


def test_status_tells_a_role_neither_times_nor_what_others_ask(engine, bound):
    for answer in (engine.ask("status", {"role": "guest"}), bound.ask("status", {})):
        assert set(answer["datasets"][0]) == {
            "dataset",
            "documents",
            "chunks",
            "embedded",
            "modalities",
        }
        assert "notes: 2 documents, 2 passages" in render("status", answer, Form()).out
    told = TOOLS["status"].call(bound, {})
    assert told.data["datasets"] == bound.ask("status", {})["datasets"]
    assert "updated" not in told.text


def test_an_unknown_role_is_told_the_known_ones_where_nobody_is_bound(engine, bound, client):
    asked = ("search", {"query": "x", "role": "boss"})
    assert "roles: guest, employee, lead" in said(engine, *asked)
    assert said(bound, *asked).endswith("there is no role 'boss'")
    answer = client.post("/v1/search", headers=bearing(GUEST), json=asked[1])
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "there is no role 'boss'"


def test_a_bound_process_is_warmed_up_with_what_it_sees(aviary):
    with engine_of(aviary, role="guest") as opened:
        opened.warm()


LEVELS = [  # as YAML, and the roles that see the document; None: it is not indexed
    ("public", "guest employee"),
    ("PUBLIC", "guest employee"),
    ("' public '", "guest employee"),
    ("[public]", "guest employee"),
    ("Internal", "employee"),
    ("[Public, INTERNAL]", "employee"),
    ("1", "one"),
    ("1.0", "one"),
    ("public, internal", ""),
    ("public/internal", ""),
    ("pub\u200blic", ""),
    ("\u0440ublic", ""),  # a Cyrillic letter
    ("secret", ""),
    ("none", ""),
    ("unlabelled", "employee"),
    *[
        (odd, "")
        for odd in ("", "null", "~", "''", "'  '", "[]", "[null]", "[public, null]", "['', public]")
    ],
    *[(odd, "") for odd in ("true", "yes", "2024-01-01", "{a: b}", "[[public]]", "&a public")],
]


def test_odd_levels_of_confidentiality_fail_closed(tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    for at, (level, _) in enumerate(LEVELS):
        (notes / f"{at:02}.md").write_text(f"---\nconfidentiality: {level}\n---\nBirds {at}.\n")
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
    roles = ("guest: public", "employee: public, internal, unlabelled", "one: 1")
    seen = {}
    with engine_of(tmp_path / "home") as opened:
        settings = AnswerSettings(roles=roles)
        opened.library.settings = opened.library.settings.model_copy(update={"answers": settings})
        for role in ("guest", "employee", "one", None):
            for entry in opened.ask("browse", {"limit": 100, "role": role})["entries"]:
                seen.setdefault(entry["path"], []).append(role)
    for at, (level, expected) in enumerate(LEVELS):
        assert seen[f"{at:02}.md"] == [*expected.split(), None], level


def test_a_comparison_asks_the_baseline_within_the_role(engine):
    with asked_as("guest"):
        results = engine.service.search(
            "canary sings in the morning", dataset="notes", compare_with_v1=True
        )
    assert (results.comparison.error, results.comparison.overlap) == ("", 1.0)
    assert len(results) == 2
    assert CANARY not in str(results.to_dict() | {"query": ""}).casefold()


@pytest.fixture(scope="module")
def client(engine):
    app = build_app(engine, HERE, SERVE, with_answers=True)
    with TestClient(app, base_url="http://127.0.0.1:8180") as started:
        yield started


def bearing(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("method", "path", "request_"),
    [
        ("POST", "/v1/search", {"json": {"query": "sings in the morning"}}),
        ("POST", "/v1/search", {"json": {"query": "sings in the morning", "role": "lead"}}),
        ("GET", "/v1/documents", {}),
        ("GET", "/v1/documents?role=lead", {}),
        ("GET", "/v1/documents/canary.md", {}),
        ("POST", "/v1/documents", {"json": {"patterns": ["*"]}}),
        ("POST", "/v1/ask", {"json": {"question": "where does it sing in the morning?"}}),
        ("GET", "/v1/status", {}),
        ("GET", "/", {}),
        ("GET", "/?q=sings+in+the+morning", {}),
    ],
)
def test_the_bearer_of_a_roles_token_asks_as_that_role(client, method, path, request_):
    answer = client.request(method, path, headers=bearing(GUEST), **request_)
    assert answer.status_code in (200, 404)
    told = answer.text.casefold().replace("canary.md", "") if answer.is_error else answer.text
    assert CANARY not in told.casefold()


def test_the_bearer_of_a_wider_token_sees_it(client):
    asked = {"json": {"query": "sings in the morning"}}
    assert CANARY in client.post("/v1/search", headers=bearing(LEAD), **asked).text
    assert client.post("/v1/search", **asked).status_code == 401


def rpc(client, method, params, token, session=None):
    headers = {"Accept": "application/json, text/event-stream", **bearing(token)}
    headers |= {"Mcp-Session-Id": session} if session else {}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return client.post("/mcp", json=body, headers=headers)


def test_a_session_answers_as_the_role_of_who_sends_the_request(client):
    about = {"name": "by hand", "version": "1"}
    first = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
    session = rpc(client, "initialize", first, LEAD).headers["mcp-session-id"]
    call = {"name": "search_chunks", "arguments": {"query": "sings in the morning"}}
    assert CANARY in rpc(client, "tools/call", call, LEAD, session).text
    told = rpc(client, "tools/call", call, GUEST, session)
    assert told.status_code == 200
    assert CANARY not in told.text.casefold()
    listed = rpc(client, "resources/list", {}, GUEST, session).text
    assert "open.md" in listed
    assert CANARY not in listed.casefold()


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_every_tool_takes_a_role_and_keeps_within_a_bound_one(bound, name):
    tool = TOOLS[name]
    schema = tool.input_schema()
    assert "role" in schema["properties"]
    given = {
        "query": "sings in the morning",
        "question": "where does it sing in the morning?",
        "reference": "open.md",
        "patterns": ["*"],
    }
    arguments = {one: given[one] for one in schema["properties"] if one in given}
    if name == "query_catalog":
        arguments = {}
    answer = tool.call(bound, {**arguments, "role": "lead"})
    assert not answer.is_error, answer.text
    assert CANARY not in f"{answer.text}{answer.data}".casefold()


@pytest.mark.parametrize(
    "told",
    [
        {"role_tokens": "guest"},
        {"role_tokens": "guest: short"},
        {"role_tokens": f"guest: {GUEST}; lead: {GUEST}"},
        {"role_tokens": f"guest: {GUEST}", "token": GUEST},
    ],
)
def test_tokens_that_do_not_name_one_role_are_refused(told):
    with pytest.raises(ValueError, match="token"):
        ServeSettings(**told)


def test_a_process_is_bound_to_a_role_that_there_is():
    with pytest.raises(ValueError, match="is not one of roles: "):
        AnswerSettings(roles=ROLES, role="boss")


def test_tokens_of_roles_are_enough_to_accept_other_machines(engine):
    reachable = Address("0.0.0.0", 8180)
    build_app(engine, reachable, SERVE)
    with pytest.raises(ConfigError):
        build_app(engine, reachable, ServeSettings())


def test_instructions_to_agents_count_no_documents_where_tokens_have_roles(client, engine):
    about = {"name": "by hand", "version": "1"}
    first = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
    told = rpc(client, "initialize", first, GUEST).text
    assert "notes" in told
    assert "5 documents" not in told
    assert "5 documents" in instructions(engine)


TITLES = {"a_dot_md": "secret.md", "b_dot_md": "r.jsonl"}


@pytest.fixture
def named(tmp_path):
    """Opens a store in which a seen document has the path of a hidden one, or none, as title."""

    def opened(*, is_hidden):
        folder = tmp_path / str(is_hidden)
        title = "---\nconfidentiality: public\ntitle: {}\n---\nA plan.\n"
        write(
            folder / "notes", a_dot_md=title.format("secret.md"), b_dot_md=title.format("r.jsonl")
        )
        if is_hidden:
            write(folder / "notes", secret_dot_md="---\nconfidentiality: internal\n---\nA plan.\n")
            line = {"id": "1", "text": "A plan.", "confidentiality": "internal"}
            (folder / "notes" / "r.jsonl").write_text(json.dumps(line) + "\n")
        with open_library(folder / "home") as library:
            Indexer(library).build(folder / "notes", "notes")
        return engine_of(folder / "home", role="guest")

    return opened


@pytest.mark.parametrize("path", ["secret.md", "r.jsonl", "r.jsonl:1"])
@pytest.mark.parametrize("verb", ["browse", "search"])
def test_a_hidden_path_changes_nothing_in_what_a_name_finds(named, verb, path):
    found = []
    for is_hidden in (False, True):
        with named(is_hidden=is_hidden) as opened:
            asked = {"filters": [f"path={path}"]} | ({"query": "plan"} if verb == "search" else {})
            answer = opened.ask(verb, asked)
            listed = answer["entries"] if verb == "browse" else answer["results"]
            found.append(sorted(one["path"] for one in listed))
    assert found[0] == found[1]
