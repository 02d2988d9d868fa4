"""What stands outside a request's scope is in no part of its answer, whoever asks for what."""

import json
import re
import sys
import types
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from catalog.core.errors import CatalogError
from catalog.core.filters import And, Filter, Not, Op, Or, condition
from catalog.core.scope import Scope
from catalog.core.settings import ServeSettings
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.server.asgi import build_app
from catalog.interfaces.server.security import Address
from catalog.interfaces.tools import TOOLS
from catalog.library.get import resolve_documents
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.engines import nearest
from catalog.store.restriction import Restriction, allowed_seqs
from fakes import WordEncoder, open_library, write
from reliability.chaos import check
from tables import read_cases

SHARED = ("kettle", "harbour", "ledger", "otter", "batch")
TALK = read_cases(__file__)["talk"]
FRAME = read_cases(__file__)["frame"]


def note(team, *words, tags=(), **fields):
    """A note of a team: its front matter, a heading and a sentence."""
    lines = [f"team: {team}", f"tags: [{', '.join(tags)}]"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    front = "\n".join(lines)
    return f"---\n{front}\n---\n# {' '.join(words)}\n\nThe {' and the '.join(words)}.\n"


def write_open(folder):
    write(
        folder,
        open__kettle_dot_md=note("open", "kettle", "harbour", tags=["ops"], owner="ann"),
        open__ledger_dot_md=note("open", "ledger", "otter", tags=["books"], modified="2024-03-01"),
        open__talk_dot_md=TALK.format(what="heat"),
        open__plain_dot_txt="A batch of kettles by the harbour.\n",
    )


def write_hidden(folder):
    write(
        folder,
        hidden__kettle_zqxa_dot_md=note(
            "hidden", "kettle", "zqxb", tags=["zqxc"], zqxd="zqxe", modified="2031-01-01"
        ),
        hidden__ledgers_zqxf_dot_md=note("hidden", "ledger", "harbour", "zqxg", zqxh=1),
        hidden__talk_zqxi_dot_md=TALK.format(what="zqxj"),
        hidden__frame_zqxk_dot_md=FRAME.format(what="zqxl"),
        hidden__table_zqxm_dot_zqxn="kettle harbour ledger zqxo\n",
    )


class Baseline:
    """Another's search, that knows nothing of scopes."""

    def find(self, query):
        return ["hidden/kettle_zqxa.md", "open/kettle.md", "hidden/table_zqxm.zqxn"]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """An engine on a store of open and hidden documents, and its twin without the hidden ones."""
    folder = tmp_path_factory.mktemp("scope")
    for name in ("both", "alone"):
        write_open(folder / name)
    write_hidden(folder / "both")
    module = types.ModuleType("scopeless_search")
    module.find = Baseline().find
    with ExitStack() as stack:
        sys.modules["scopeless_search"] = module
        stack.callback(sys.modules.pop, "scopeless_search")
        engines = []
        for name in ("both", "alone"):
            library = open_library(folder / f"home-{name}", baseline="scopeless_search:find")
            engines.append(stack.enter_context(LocalEngine(library)))
            report = Indexer(library).build(folder / name, "notes", include=("*",))
            assert report.failed == ()
        yield engines


@pytest.fixture(scope="module")
def engine(stores):
    return stores[0]


@pytest.fixture(scope="module")
def names(engine):
    """The source document ids of the open documents, and of the hidden ones."""
    database = engine.library.database
    opened = resolve_documents(database, "notes", ["open/**"])
    hidden = resolve_documents(database, "notes", ["hidden/**"])
    assert len(opened) == 4
    assert len(hidden) >= 4
    return opened, hidden


OPEN_FILTERS = read_cases(__file__)["open_filters"]
WORDS = st.sampled_from((*SHARED, "zq", "zqx", "heat", "tale", "kettle_zqx", "hidden", "the"))
QUERIES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
ODD_FIELDS = ("nowhere=1", "zqx=1", "tea=1")


@st.composite
def scoped_searches(draw):
    """Parameters of a search that lets in open documents alone."""
    params = {"dataset": "notes", "query": draw(QUERIES), "rerank": False, "explain": True}
    params["mode"] = draw(st.sampled_from(("hybrid", "lexical", "vector")))
    params["top_k"] = draw(st.integers(1, 30))
    by = draw(st.sampled_from(("doc_ids", "filters", "docs", "filters and docs")))
    if by == "doc_ids":
        params["doc_ids"] = draw(st.lists(st.sampled_from(("open/kettle.md", "open/talk.md",
                                                           "open/ledger.md", "gone"))))  # fmt: skip
    if by.startswith("filters"):
        chosen = draw(st.sampled_from(OPEN_FILTERS))
        odd = draw(st.sampled_from((None, None, *ODD_FIELDS)))
        params["filters"] = chosen if odd is None else [odd, "path~open/"]
    if by == "docs":
        params["docs"] = ["open/**"]
    if by == "filters and docs" or (by == "doc_ids" and draw(st.booleans())):
        params["docs"] = [draw(st.sampled_from(("kettle", "hidden/kettle", "open/*", "tabl")))]
    if draw(st.booleans()):
        params["name"] = draw(st.sampled_from(("kettel", "ledgers", "zq", "table")))
    if draw(st.booleans()):
        params["file_type"] = draw(st.sampled_from(("md", "txt", "pdf", "zzz")))
    params["compare_with_v1"] = draw(st.booleans())
    return params


def search(engine, params):
    """The answer's JSON object, from Python, where all parameters may be given."""
    return engine.service.search(**params).to_dict()


def given_back(ask):
    """All that a call gave, as one text: its answer, or its error with whatever that carries."""
    try:
        answer = ask()
    except CatalogError as error:
        answer = [str(error), vars(error)]
    return json.dumps(answer, ensure_ascii=False, default=repr)


def foreign(text):
    """The canaries in a text; what callers ask for is like them, but holds none."""
    return set(re.findall("zqx[a-o]", text))


def test_without_a_scope_every_surface_holds_the_words_that_are_watched_for(engine):
    params = {"dataset": "notes", "query": "otter ledger", "mode": "vector", "top_k": 30}
    answer = search(engine, {**params, "compare_with_v1": True})
    shown = [hit["evidence"]["lines"] for hit in answer["results"] if hit.get("evidence")]
    assert {"zqxj", "zqxl"} & foreign(str(shown))
    assert foreign(str([hit["text"] for hit in answer["results"]])) > {"zqxb", "zqxg"}
    asked = {**params, "doc_ids": ["open/plain.txt"], "compare_with_v1": True}
    assert search(engine, asked)["comparison"]["note"].startswith("asked without doc_ids")
    assert foreign(str(engine.ask("browse", {"dataset": "notes"}))) >= {"zqxa", "zqxc", "zqxg"}


@pytest.mark.slow
def test_no_search_gives_a_word_from_outside_its_scope(engine):
    @given(scoped_searches())
    def holds(params):
        text = given_back(lambda: search(engine, params))
        assert not foreign(text), params
        plain = {name: value for name, value in params.items() if name != "compare_with_v1"}
        service = SearchServiceV2(engine.library, engine.service.parts)
        nodes = given_back(lambda: [node.dict() for node in service.retrieve(**plain)])
        assert not foreign(nodes), params

    check(holds)


@pytest.mark.slow
def test_a_search_finds_and_notes_what_it_would_if_the_rest_were_not_there(stores):
    @given(scoped_searches())
    def holds(params):
        both, alone = (told(engine, {**params, "top_k": 30}) for engine in stores)
        assert both == alone, params

    def told(engine, params):
        try:
            answer = search(engine, {**params, "compare_with_v1": False})
        except CatalogError as error:
            return type(error).__name__
        notes = sorted(answer["notes"])
        stages = [(stage["name"], stage["status"]) for stage in answer["stages"]]
        return {hit["path"] for hit in answer["results"]}, notes, stages

    check(holds, examples=20)


@pytest.mark.slow
def test_no_tool_of_an_agent_gives_a_word_from_outside_its_scope(engine):
    tools = ("search", "vsearch", "query")

    @given(scoped_searches(), st.sampled_from(tools))
    def holds(params, name):
        fields = TOOLS[name].parameters
        asked = {key: value for key, value in params.items() if key in fields}
        if isinstance(asked.get("filters"), dict):
            asked["filters"] = ["path~open/"]
        if not {"docs", "filters"} & set(asked):
            asked["docs"] = ["open/**"]
        if "docs" in asked and "filters" not in asked:
            asked["docs"] = ["open/**"]
        answer = TOOLS[name].call(engine, asked)
        assert not foreign(json.dumps([answer.text, answer.data], default=repr)), asked

    check(holds, examples=20)


@pytest.fixture(scope="module")
def http(engine):
    """A client of our HTTP API, in this process."""
    app = build_app(engine, Address("127.0.0.1", 8180), ServeSettings())
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


@pytest.mark.slow
def test_no_http_answer_holds_a_word_from_outside_its_scope(http):
    @given(scoped_searches(), st.booleans())
    def holds(params, posts):
        pythons = ("doc_ids", "compare_with_v1")
        asked = {k: v for k, v in params.items() if k not in pythons}
        if not posts or not isinstance(asked.get("filters"), dict | list):
            asked["filters"] = ["path~open/"]
        if posts:
            answer = http.post("/v1/search", json=asked)
        else:
            asked["q"] = asked.pop("query")
            answer = http.get("/v1/search", params=asked)
        statuses.add(answer.status_code)
        assert not foreign(answer.text + str(answer.headers)), asked

    statuses = set()
    check(holds)
    assert {200, 404} <= statuses <= {200, 400, 404}


def test_no_http_listing_holds_a_word_from_outside_its_filters(http):
    @given(QUERIES, st.sampled_from(("best", "name")), st.sampled_from((None, *ODD_FIELDS)))
    def holds(query, sort, odd):
        conditions = ["path~open/"] if odd is None else [odd, "path~open/"]
        asked = {"dataset": "notes", "query": query, "sort": sort, "filters": conditions}
        answer = http.get("/v1/documents", params=asked)
        assert answer.status_code in (200, 400), answer.text
        assert not foreign(answer.text + str(answer.headers)), asked

    check(holds)


@pytest.mark.slow
def test_no_listing_counts_or_names_what_its_filters_hide(stores):
    listings = st.fixed_dictionaries(
        {"dataset": st.just("notes"), "filters": st.sampled_from((*OPEN_FILTERS, ["path~open/",
                                                                           "zqx=1"]))},
        optional={
            "query": QUERIES,
            "name": st.sampled_from(("kettel", "ledgers", "zqx", "table")),
            "tags": st.lists(st.sampled_from(("ops", "zqx", "book")), max_size=2),
            "file_type": st.sampled_from(("md", "zqx", "pdf")),
            "after": st.sampled_from(("2030", "1990")),
            "sort": st.sampled_from(("best", "name", "modified", "size")),
        },
    )  # fmt: skip

    @given(listings)
    def holds(params):
        texts = [given_back(lambda e=e: e.ask("browse", params)) for e in stores]
        assert not foreign(texts[0]), params
        pages = [json.loads(text) for text in texts]
        if isinstance(pages[0], dict):
            for name in ("total", "types", "notes"):
                assert pages[0][name] == pages[1][name], (name, params)

    check(holds)


TREES = st.recursive(
    st.sampled_from(
        (
            condition("team", Op.EQ, "open"),
            condition("tags", Op.IN, ["ops", "zqxc"]),
            condition("owner", Op.NE, "bob"),
            condition("path", Op.IN, []),
            condition("file_type", Op.EQ, "md"),
        )
    ),
    lambda parts: st.one_of(
        parts.map(Not),
        st.lists(parts, max_size=3).map(lambda some: And(tuple(some))),
        st.lists(parts, max_size=3).map(lambda some: Or(tuple(some))),
    ),
    max_leaves=6,
)


class Engines:
    """The passages that each engine lets through; all are asked for, so ranks do not matter."""

    def __init__(self, engine):
        library = engine.library
        self._indexes, self._database = library.indexes, library.database
        self._vector = WordEncoder().encode([" ".join(SHARED)])[0]
        with self._database.read() as connection:
            self.all = frozenset(allowed_seqs(connection, Restriction("notes", Scope.of(None),
                                                                     Or((And(()),)))))  # fmt: skip

    def allowed(self, scope=None, tree: Filter | None = None):
        """The passages, and that SQL and both vector engines agree on them."""
        restriction = Restriction("notes", Scope.of(None) if scope is None else scope, tree)
        with self._database.read() as connection:
            rows = allowed_seqs(connection, restriction)
        rows = self.all if rows is None else frozenset(map(int, rows))
        for engine in (self._indexes.vector("notes"), self._indexes.vector("notes", "flat")):
            found = {
                hit.seq for hit in nearest(engine, self._database, self._vector, 100, restriction)
            }
            assert found == rows, (engine.name, restriction)
        lexical = self._indexes.lexical("notes")
        everywhere = {hit.seq for hit in lexical.search("the kettle", 100, Restriction("notes"))}
        inside = {hit.seq for hit in lexical.search("the kettle", 100, restriction)}
        assert inside == everywhere & rows, restriction
        return rows


@pytest.mark.slow
def test_scopes_and_filters_are_sets_that_every_engine_reads_alike(engine, names):
    engines = Engines(engine)
    every = [*names[0], *names[1], "notes:gone.md"]
    subsets = st.lists(st.sampled_from(every)).map(Scope.of)

    @given(subsets, subsets, TREES, TREES)
    def holds(one, two, a, b):
        allowed = engines.allowed
        assert allowed(one & two) == allowed(one) & allowed(two)
        assert allowed(one, a) == allowed(one) & allowed(tree=a)
        assert allowed(tree=And((a, b))) == allowed(tree=a) & allowed(tree=b)
        assert allowed(tree=Or((a, b))) == allowed(tree=a) | allowed(tree=b)
        assert allowed(tree=Not(a)) == engines.all - allowed(tree=a)
        assert allowed(tree=Not(Not(a))) == allowed(tree=a)

    check(holds, examples=12)
    assert engines.allowed(Scope.of(None)) == engines.all
    assert engines.allowed(Scope.of(())) == frozenset()
    assert engines.allowed(tree=condition("team", Op.IN, [])) == frozenset()
    assert engines.allowed(tree=And(())) == engines.all
    assert engines.allowed(tree=Or(())) == frozenset()


def test_fusion_finds_no_more_than_the_scope_and_all_of_it(engine, names):
    every = [*names[0], *names[1]]
    subsets = st.lists(st.sampled_from(every), unique=True)

    @given(subsets, st.sampled_from(("hybrid", "vector")))
    def holds(chosen, mode):
        params = {"dataset": "notes", "query": "the kettle", "doc_ids": chosen, "mode": mode}
        answer = search(engine, {**params, "top_k": 50})
        assert {hit["source_doc_id"] for hit in answer["results"]} == set(chosen)

    check(holds, examples=20)


def test_a_name_that_is_unknown_is_an_error_and_nothing_is_suggested_from_outside(engine):
    asked = {"dataset": "notes", "query": "kettle", "docs": ["kettle_zq"]}
    with pytest.raises(CatalogError, match="zqxa") as open_to_all:
        search(engine, asked)
    assert open_to_all.value.suggestions
    for narrowed in ({"doc_ids": ["open/kettle.md"]}, {"filters": "path~open/"}, {"doc_ids": []}):
        with pytest.raises(CatalogError, match="no document") as raised:
            search(engine, {**asked, **narrowed})
        assert not foreign(str([raised.value, vars(raised.value)]))


def test_unknown_fields_are_answered_with_those_of_the_documents_let_in(engine):
    def message(verb, **asked):
        with pytest.raises(CatalogError) as raised:
            engine.ask(verb, {"dataset": "notes", **asked})
        return str(raised.value)

    assert "zqxd" in message("browse", filters=["nowhere=1"])
    for filters in (["nowhere=1", "path~open/"], {"path": "open/kettle.md", "nowhere": 1}):
        for verb, more in (("browse", {}), ("search", {"query": "kettle"})):
            told = message(verb, filters=filters, **more)
            assert "owner" in told
            assert not foreign(told)
    with pytest.raises(CatalogError, match="nowhere") as raised:
        engine.service.search("x", dataset="notes", filters="nowhere=1", doc_ids=[])
    assert "owner" not in str(raised.value)
