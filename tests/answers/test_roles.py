"""No verb, edge or tool shows a role what it may not see, or that there is more."""

import json
import shutil

import pytest
from starlette.testclient import TestClient

from answers.conftest import ROLES, asking, serve
from catalog.answers.answering import answer_question
from catalog.core.errors import (
    CatalogError,
    ConfigError,
    DocumentNotFoundError,
    InputError,
    UnknownFieldError,
    UnknownValueError,
)
from catalog.core.params import SearchParams
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
from catalog.store.document_names import read_levels
from fakes import open_library, write
from stores import open_store, store_of
from tables import read_cases, table

SALARY = "What is the salary of a director?"


def seen(service, role, **params):
    found = service.run(SearchParams("salary keys cancel bread", role=role, **params))
    return {result.path for result in found}


@table("role, paths")
def test_a_role_sees_documents_all_of_whose_levels_it_may_see(service, role, paths):
    assert seen(service, role or None) == set(paths)


def test_a_role_is_part_of_scope_of_an_answer(service):
    assert "9000" in answer_question(service, asking(SALARY, role="lead")).text
    answer = answer_question(service, asking(SALARY, role="employee"))
    found = service.run(SearchParams("salary", role="guest", name="salaries"))
    assert answer.abstained
    assert not found.results
    for said in (str(answer.to_dict()), str(found.to_dict())):
        assert "salaries.md" not in said
        assert "9000" not in said


def test_an_unknown_role_is_refused_with_those_there_are(service):
    with pytest.raises(InputError, match="'boss'"):
        service.run(SearchParams("keys", role="boss"))


@table("hidden, absent", list)
def test_what_a_role_may_not_see_is_refused_as_what_is_not_there(service, hidden, absent):
    messages = []
    for params in (hidden, absent):
        with pytest.raises((DocumentNotFoundError, UnknownValueError, UnknownFieldError)) as caught:
            service.run(SearchParams("salary", role="employee", **params))
        messages.append(str(caught.value))
    (first, hint), (second, _) = (
        one.split(";", 1) if ";" in one else (one, "") for one in messages
    )
    names = [str(next(iter(given.values()))[0]) for given in (hidden, absent)]
    for part, its in zip(names[0].split("="), names[1].split("="), strict=True):
        first = first.replace(part, its)
    assert first == second
    assert "salaries" not in hint


@pytest.fixture
def plans():
    """Seven documents named alike that only some may see, and one that everybody may."""
    hidden = "---\nconfidentiality: secret\ntitle: Roadmap\n---\nThe plan.\n"
    files = {f"plans/plan{n}.md": hidden for n in range(7)}
    files["plans/planet.md"] = "The planet.\n"
    files["plans/road.md"] = "---\ntitle: plan3.md\n---\nA road.\n"
    opened = serve(store_of(files))
    yield opened
    opened.close()


@pytest.mark.parametrize("narrowed", [{"role": "employee"}, {"doc_ids": ["planet.md", "road.md"]}])
def test_near_misses_are_looked_for_among_the_documents_that_may_answer(plans, narrowed):
    with pytest.raises(DocumentNotFoundError) as caught:
        plans.run(SearchParams("plan", docs=["plan8.md"], **narrowed))
    assert caught.value.suggestions[0] == "plans:planet.md"


def test_a_hidden_document_takes_no_name_from_one_that_is_seen(plans):
    found = plans.run(SearchParams("road", docs=["plan3.md"], role="employee"))
    assert [result.path for result in found] == ["road.md"]


@pytest.mark.parametrize("before", ["./", "plans/", "plans:./", "file://./", ".\\"])
def test_another_way_to_write_a_hidden_name_is_unknown_like_one_that_is_not_there(plans, before):
    told = []
    for name in ("plan2.md", "plan9.md"):
        with pytest.raises(DocumentNotFoundError) as caught:
            plans.run(SearchParams("plan", docs=[f"{before}{name}"], role="employee"))
        told.append(str(caught.value).replace(name[:5], "plan"))
    assert told[0] == told[1]


def test_levels_that_are_large_numbers_stay_apart(tmp_path):
    levels = {"a.md": 1_000_001, "b.md": 1_000_002}
    text = "---\nconfidentiality: {}\n---\nA walrus.\n"
    files = {f"d/{name}": text.format(level) for name, level in levels.items()}
    with open_store(files, tmp_path) as library, library.database.read() as connection:
        stated = read_levels(connection, ["d"])
    assert stated == {f"d:{name}": frozenset({str(level)}) for name, level in levels.items()}


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
    lines = (
        ("bird", "A bird of the list.", "Listed", "public"),
        ("canary-1", "A canary of the list.", "canary", "internal"),
    )
    names = ("id", "text", "title", "confidentiality")
    rows = [json.dumps(dict(zip(names, line, strict=True))) for line in lines]
    (folder / "notes" / "list.jsonl").write_text("\n".join(rows) + "\n")
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


ASKED = read_cases(__file__)["asked"]


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


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "arguments"), ASKED)
def test_a_bound_process_shows_no_more_to_a_caller_that_names_another_role(bound, verb, arguments):
    for role in (None, "guest", "lead"):
        assert CANARY not in said(bound, verb, {**arguments, "role": role}).casefold()


@pytest.mark.slow
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


ASKED_OF_HIDDEN = read_cases(__file__)["asked_of_hidden"]


@pytest.fixture(scope="module")
def bound_and_free(aviary):
    with engine_of(aviary, role="guest") as bound, engine_of(aviary) as free:
        yield bound, free


@pytest.mark.parametrize(("verb", "arguments"), ASKED_OF_HIDDEN)
def test_a_dataset_of_hidden_documents_does_not_exist_for_a_role(bound_and_free, verb, arguments):
    bound, free = bound_and_free
    for opened, role in ((bound, None), (bound, "lead"), (free, "guest")):
        told = said(opened, verb, {**arguments, "role": role})
        for name in ("canaryset", "canaryse"):  # as it was asked
            asked = arguments.get("dataset")
            told = told.replace(f"no dataset {name!r}", "") if name in str(asked) else told
        assert CANARY not in told.casefold()
    assert "canaryset" in said(free, "status", {})


def test_instructions_name_datasets_that_all_roles_of_tokens_see(bound_and_free):
    bound, free = bound_and_free
    bound.warm()  # with what it sees
    assert "canaryset" in instructions(free)
    assert "canaryset" in instructions(free, ["lead"])
    told = instructions(free, ["lead", "guest"])
    assert "notes" in told
    assert CANARY not in told


def test_status_tells_a_role_neither_times_nor_what_others_ask(engine, bound):
    for answer in (engine.ask("status", {"role": "guest"}), bound.ask("status", {})):
        told = {"dataset", "documents", "chunks", "embedded", "modalities"}
        assert set(answer["datasets"][0]) == told
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


@pytest.mark.slow
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


@table("method, path, request_", list)
def test_the_bearer_of_a_roles_token_asks_as_that_role(client, method, path, request_):
    answer = client.request(method, path, headers=bearing(GUEST), **request_)
    assert answer.status_code in (200, 404)
    told = answer.text.casefold().replace("canary.md", "") if answer.is_error else answer.text
    assert CANARY not in told.casefold()


def test_the_bearer_of_a_wider_token_sees_it(client):
    asked = {"json": {"query": "sings in the morning"}}
    assert CANARY in client.post("/v1/search", headers=bearing(LEAD), **asked).text
    assert client.post("/v1/search", **asked).status_code == 401


def rpc(client, method, params, token):
    headers = {"Accept": "application/json, text/event-stream", **bearing(token)}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return client.post("/mcp", json=body, headers=headers)


def test_a_call_over_mcp_answers_as_the_role_of_who_sends_it(client):
    about = {"name": "by hand", "version": "1"}
    first = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
    assert "mcp-session-id" not in rpc(client, "initialize", first, LEAD).headers
    call = {"name": "search_chunks", "arguments": {"query": "sings in the morning"}}
    assert CANARY in rpc(client, "tools/call", call, LEAD).text
    told = rpc(client, "tools/call", call, GUEST)
    assert told.status_code == 200
    assert CANARY not in told.text.casefold()
    listed = rpc(client, "resources/list", {}, GUEST).text
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


@table("told")
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


TITLE = "---\nconfidentiality: public\ntitle: {}\n---\nA plan.\n"
TITLED = {"notes/a.md": TITLE.format("secret.md"), "notes/b.md": TITLE.format("r.jsonl")}
HIDDEN = {
    "notes/secret.md": "---\nconfidentiality: internal\n---\nA plan.\n",
    "notes/r.jsonl": '{"id": "1", "text": "A plan.", "confidentiality": "internal"}\n',
}


@pytest.mark.slow
@pytest.mark.parametrize("path", ["secret.md", "r.jsonl", "r.jsonl:1"])
@pytest.mark.parametrize("verb", ["browse", "search"])
def test_a_hidden_path_changes_nothing_in_what_a_name_finds(verb, path):
    """A document that is seen has the path of a hidden one, or of none, as its title."""
    found = []
    for files in (TITLED, TITLED | HIDDEN):
        with engine_of(store_of(files), role="guest") as opened:
            asked = {"filters": [f"path={path}"]} | ({"query": "plan"} if verb == "search" else {})
            answer = opened.ask(verb, asked)
            listed = answer["entries"] if verb == "browse" else answer["results"]
            found.append(sorted(one["path"] for one in listed))
    assert found[0] == found[1]
