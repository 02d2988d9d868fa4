"""Agents: files that say as whom, with which model and from what a question is answered."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest

from answers.conftest import WritingLLM, asking, serve
from catalog.answers.answering import answer_question
from catalog.core.agents import agent_places, read_agent, with_agent
from catalog.core.errors import ConfigError, InputError
from catalog.core.params import SearchParams
from catalog.core.retrieval_events import asked_at
from catalog.core.settings import LLMSettings, load_settings
from catalog.core.settings.sections import LogSettings
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.tools import call_tool
from catalog.library.library import Library
from catalog.retrieval.relevance import WORDS_ONLY, Calibration, save_calibration
from catalog.search_v2 import CatalogRetriever, DatasetRetriever, SearchServiceV2
from tables import read_cases, table

CANCEL = "How many days may customers cancel within?"
RIGHT = "Customers may cancel within 14 days of the order [1]."
MADE = []


@pytest.fixture
def agents(tmp_path):
    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
        return tmp_path

    return write


def agent_of(project, folder, name):
    service = serve(project, agents=folder)
    try:
        return read_agent(service.parts.settings, name)
    finally:
        service.close()


def answer(project, folder, question=CANCEL, llm=None, **params):
    service = serve(project, llm, agents=folder)
    try:
        return answer_question(service, asking(question, **params))
    finally:
        service.close()


def named_writer():
    MADE.append("premium")
    return WritingLLM(replies=[RIGHT], prompts=[])


def test_the_default_agent_needs_no_file(project, agents):
    assert agent_of(project, agents(), None) == agent_of(project, agents(), "default")
    assert agent_of(project, agents(default='persona = "Be kind."'), None).persona == "Be kind."


def test_an_agent_that_cannot_answer_is_an_error(project, agents):
    with pytest.raises(InputError, match="'nobody'"):
        answer(project, agents(lawyer=""), agent="nobody")
    with pytest.raises(InputError, match="no agent"):
        answer(project, agents(lawyer=""), agent="../lawyer")
    with pytest.raises(InputError, match="'planner'"):  # it writes artifacts
        answer(project, agents(planner="output = 'blueprint'"), agent="planner")
    with pytest.raises(ConfigError, match="nests too deeply"):
        agent_of(project, agents(deep="persona = " + "[" * 20_000), "deep")
    folder = agents(clerk="")
    os.mkfifo(folder / "pipe.toml")
    with pytest.raises(InputError, match="'pipe'"):
        agent_of(project, folder, "pipe")


@table("text, why")
def test_a_wrong_file_is_named_with_its_key(project, agents, text, why):
    with pytest.raises(ConfigError, match=f"lawyer.toml.*{why}"):
        agent_of(project, agents(lawyer=text), "lawyer")


@pytest.mark.slow
def test_persona_temperature_and_longest_reply_reach_the_model(project, agents):
    heard = {}

    class Hearing(WritingLLM):
        def stream(self, messages, **options):
            heard.update(options)
            yield from super().stream(messages, **options)

    folder = agents(clerk='persona = "You are a clerk."\ntemperature = 0.3\nmax_tokens = 64')
    llm = Hearing(replies=[RIGHT], prompts=[])
    assert answer(project, folder, llm=llm, agent="clerk").model == "writer"
    assert llm.prompts[0].startswith("system: You are a clerk.\n\nYou answer a question from")
    assert heard == {"temperature": 0.3, "max_tokens": 64}


@pytest.mark.slow
def test_an_agents_choices_give_way_to_the_calls(project, agents):
    folder = agents(brief='[retrieval]\ntop_k = 1\nmode = "lexical"')
    given = answer(project, folder, agent="brief").results
    assert (len(given), given.mode) == (1, "lexical")
    assert len(answer(project, folder, agent="brief", top_k=2).results) == 2


@table("retrieval, params, paths", list)
def test_an_agent_narrows_what_a_call_asks_for_and_never_widens_it(
    project, agents, retrieval, params, paths
):
    folder = agents(narrow=f"[retrieval]\n{retrieval}")
    try:
        given = answer(project, folder, "keys bread flour salary", agent="narrow", **params)
    except InputError:
        assert not paths  # a document that the role does not see is none
    else:
        assert {one.path for one in given.results} == set(paths)


def test_an_agent_and_a_call_with_nothing_in_common_are_an_error(project, agents):
    folder = agents(narrow='[retrieval]\ndocs = ["keys.md"]\ndataset = "notes"')
    agent = agent_of(project, folder, "narrow")
    with pytest.raises(InputError, match="answers"):
        with_agent(asking("x", agent="narrow", docs=["bread.txt"]), agent)
    with pytest.raises(InputError, match="answers only from notes"):
        with_agent(asking("x", agent="narrow", dataset="others"), agent)


def test_a_hint_keeps_to_documents_that_are_meant_for_it(project, agents):
    folder = agents(clerk='agent_hint = "clerk"')
    for params in ({"agent": "clerk"}, {"agent_hint": "clerk"}):
        given = answer(project, folder, "cancel keys", **params)
        assert {one.path for one in given.results} == {"cancel.md"}
    with pytest.raises(InputError, match="lawyer"):
        answer(project, folder, agent="clerk", agent_hint="lawyer")


def test_a_profile_is_a_model_of_its_own(project, agents):
    plain = serve(project)
    named = f"{__name__}:named_writer"
    llm = LLMSettings(provider=f"{__name__}:nothing", premium=named)
    answers = plain.parts.settings.answers.model_copy(
        update={"agents": agents(rich='profile = "premium"')}
    )
    settings = plain.parts.settings.model_copy(update={"llm": llm, "answers": answers})
    library = Library(settings, model=plain.library.model)
    plain.close()
    MADE.clear()
    with library:
        assert library.llm_of("premium") is library.llm_of("premium")
        assert MADE == ["premium"]
        with pytest.raises(ConfigError, match="nothing"):
            library.llm_of("cheap")
    on_server = LLMSettings(provider="openai", model="m", cheap="llama3:8b")
    assert on_server.of_profile("cheap").model == "llama3:8b"
    assert on_server.of_profile("balanced").model == "m"


WORDS = "keys bread flour salary cancel order"
TABLES = read_cases(__file__)["tables"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The settings file, with the agents of TABLES; the function writes another text."""
    path = tmp_path / "catalog.toml"
    monkeypatch.setenv("IDX_CONFIG", str(path))

    def write(text=TABLES):
        path.write_text(text, encoding="utf-8")
        return path

    write()
    return write


def engine_of(home, **changes):
    """Open a store with the agents of the settings file, and what else of the settings changes."""
    plain = serve(home)
    agents = load_settings(overrides={"home": home}).settings.agents
    settings = plain.parts.settings.model_copy(update={"agents": agents, **changes})
    model = plain.library.model
    plain.close()
    return LocalEngine(Library(settings, model=model))


@pytest.fixture
def opened(project, file):
    """The shared store as the settings file says."""
    with engine_of(project) as engine:
        yield engine


@pytest.fixture
def copy(project, file, tmp_path):
    """The home of a store that may be changed."""
    return shutil.copytree(project.with_name("unasked"), tmp_path / "home")


def paths(results):
    return {one.path for one in results}


def test_an_agents_choices_apply_unless_the_call_makes_them(opened):
    plain = opened.service.search(WORDS)
    brief = opened.service.search(WORDS, agent="brief")
    assert (len(plain), plain.mode, plain.agent) == (4, "hybrid", None)
    assert (len(brief), brief.mode, brief.agent) == (1, "lexical", "brief")
    assert brief[0].chunk_id == opened.service.search(WORDS, mode="lexical")[0].chunk_id


def test_a_choice_of_the_call_wins_though_it_is_the_default(opened):
    given = opened.service.search(WORDS, agent="brief", mode="hybrid", top_k=10)
    assert (given.mode, len(given)) == ("hybrid", 4)
    by_json = opened.ask("search", {"query": WORDS, "agent": "brief", "mode": "hybrid"})
    assert (by_json["mode"], by_json["agent"], len(by_json["results"])) == ("hybrid", "brief", 1)


def test_an_agent_may_sort_by_date_and_favour_recent_documents(opened):
    service = opened.service
    found = service.search(WORDS, agent="news", explain=True)
    dates = [hit.date for hit in found]
    assert dates == sorted(dates, reverse=True)
    assert {hit.explain.recency.half_life_days for hit in found} == {90.0}
    own = service.search(WORDS, agent="news", explain=True, sort="best", recency_half_life_days=0)
    assert {hit.explain.recency for hit in own} == {None}


def test_any_of_an_agents_tags_is_enough_and_the_calls_filters_apply_too(opened):
    search = opened.service.search
    assert paths(search(WORDS, agent="code-analyzer")) == {"keys.md", "salaries.md"}
    one = search(WORDS, agent="code-analyzer", filters=["tag=payroll"])
    assert paths(one) == {"salaries.md"}
    assert paths(search(WORDS, agent="code-analyzer", doc_ids=["bread.txt"])) == set()
    assert paths(search(WORDS, agent="texts")) == {"bread.txt"}
    nothing = search(WORDS, agent="texts", filters={"path": "keys.md"})
    assert paths(nothing) == set()
    assert any("agent texts" in note for note in nothing.notes)
    assert paths(search(WORDS, agent="code-analyzer", role="guest")) == set()


def test_nodes_and_candidates_are_the_agents_too(opened):
    service = SearchServiceV2(opened.library, opened.service.parts)
    nodes = service.retrieve(WORDS, agent="brief")
    assert [node.metadata["path"] for node in nodes] == [
        one.path for one in opened.service.search(WORDS, agent="brief")
    ]
    by_llama = CatalogRetriever(service=opened.service, agent="brief").retrieve(WORDS)
    assert [node.node_id for node in by_llama] == [node.node_id for node in nodes]
    with pytest.raises(InputError, match="fusion"):
        DatasetRetriever("notes", agent="brief")


def test_an_agents_threshold_gives_way_to_the_calls(copy):
    words = "bread flour yeast salary"
    with engine_of(copy) as engine:
        made = Calibration(constant=-2.0, words=3.0)
        save_calibration(engine.library.database, WORDS_ONLY, made)
    with engine_of(copy) as engine:
        every = engine.service.search(words, mode="lexical")
        assert [one.path for one in every] == ["bread.txt", "salaries.md"]
        between = sum(one.relevance for one in every) / 2
        search = engine.service.search
        assert paths(search(words, agent="sure")) == set()
        assert paths(search(words, agent="sure", similarity_threshold=0)) == paths(every)
        assert paths(search(words, agent="sure", similarity_threshold=between)) == {"bread.txt"}


@table("text, why")
def test_a_wrong_table_is_named_with_file_and_key_before_anything_is_searched(file, text, why):
    path = file(text)
    with pytest.raises(ConfigError, match=f"{path}.*{why}"):
        load_settings()


def test_a_file_of_the_folder_stands_in_for_the_table_of_that_name(tmp_path, file):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "brief.toml").write_text("profile = 'cheap'")
    settings = load_settings(overrides={"home": tmp_path}).settings
    assert read_agent(settings, "brief").retrieval == {}
    assert read_agent(settings, "texts").retrieval["file_type"] == "text"
    assert agent_places(settings)["brief"] == tmp_path / "agents" / "brief.toml"
    assert agent_places(settings)["texts"] is None
    assert next(iter(agent_places(settings).items())) == ("default", None)


def test_an_agent_of_the_file_replaces_the_presets_as_a_whole(file):
    file('[agents.code-analyzer]\npersona = "Brief."')
    settings = load_settings(preset="agents").settings
    agent = read_agent(settings, "code-analyzer")
    assert (agent.filter_by_tags, agent.persona) == ((), "Brief.")
    assert read_agent(settings, "log-reader").retrieval == {"top_k": 5, "mode": "lexical"}


def test_the_agents_of_the_preset_are_the_designs():
    agent = read_agent(load_settings(preset="agents").settings, "code-analyzer")
    assert (agent.retrieval["top_k"], agent.retrieval["similarity_threshold"]) == (10, 0.5)
    assert agent.filter_by_tags == ("python", "best-practices")


def test_who_asked_is_in_the_log(copy):
    with engine_of(copy, log=LogSettings(verbs=("search",))) as engine, asked_at("python"):
        engine.service.run_logged(SearchParams(WORDS, agent="brief"))
        engine.service.run_logged(SearchParams(WORDS))
        with pytest.raises(InputError):
            engine.service.run_logged(SearchParams(WORDS, agent="my secret"))
    with closing(sqlite3.connect(copy / "catalog.db")) as connection:
        logged = connection.execute("SELECT agent FROM query_log ORDER BY id").fetchall()
    assert logged == [("brief",), (None,), (None,)]


def test_a_tool_searches_as_an_agent(opened):
    found = call_tool(opened, "search_chunks", {"query": WORDS, "agent": "brief"})
    assert (found.data["mode"], len(found.data["results"])) == ("lexical", 1)
    wrong = call_tool(opened, "search_chunks", {"query": WORDS, "agent": "x"})
    assert wrong.is_error
    assert "code-analyzer" in wrong.data["message"]
    with pytest.raises(InputError, match="code-analyzer"):
        opened.service.search(WORDS, agent="x")
    for threshold in (True, 1.5, "much"):
        with pytest.raises(InputError, match="similarity_threshold"):
            opened.service.search(WORDS, similarity_threshold=threshold)
