"""Agents: files that say as whom, with which model and from what a question is answered."""

import os

import pytest

from answers.conftest import WritingLLM, asking, serve
from catalog.answers.answering import answer_question
from catalog.core.agents import read_agent, with_agent
from catalog.core.errors import ConfigError, InputError
from catalog.core.settings import LLMSettings
from catalog.library.library import Library

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


def test_an_unknown_agent_is_an_error_that_lists_those_there_are(project, agents):
    with pytest.raises(InputError, match="'nobody'"):
        answer(project, agents(lawyer=""), agent="nobody")
    with pytest.raises(InputError, match="no agent"):
        answer(project, agents(lawyer=""), agent="../lawyer")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("voice = 'x'", "voice: unknown key; keys: persona"),
        ("temperature = 1.5", "temperature: .*less than or equal to 1"),
        (
            "output = 'pdr'\ntemperature = 0.9",
            "temperature: the temperature of an artifact is 0.2 to 0.4",
        ),
        ("profile = 'free'", "profile: .*cheap"),
        ("[retrieval]\ntop = 3", "retrieval: .*top"),
        ("[retrieval]\nrole = 'lead'", "retrieval: .*role"),
        ("[retrieval]\ntop_k = 0", "retrieval: top_k must be"),
        ("persona = ", "is not TOML"),
        ("persona = " + "[" * 20_000, "nests too deeply"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(project, agents, text, why):
    with pytest.raises(ConfigError, match=f"lawyer.toml.*{why}"):
        agent_of(project, agents(lawyer=text), "lawyer")


def test_an_agent_that_writes_artifacts_answers_nothing(project, agents):
    with pytest.raises(InputError, match="'planner'"):
        answer(project, agents(planner="output = 'blueprint'"), agent="planner")


def test_a_pipe_is_not_read_as_an_agent(project, agents):
    folder = agents(clerk="")
    os.mkfifo(folder / "pipe.toml")
    with pytest.raises(InputError, match="'pipe'"):
        agent_of(project, folder, "pipe")


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


def test_an_agents_choices_give_way_to_the_calls(project, agents):
    folder = agents(brief='[retrieval]\ntop_k = 1\nmode = "lexical"')
    given = answer(project, folder, agent="brief").results
    assert (len(given), given.mode) == (1, "lexical")
    assert len(answer(project, folder, agent="brief", top_k=2).results) == 2


@pytest.mark.parametrize(
    ("retrieval", "params", "paths"),
    [
        ('file_type = "text"', {}, {"bread.txt"}),
        ('file_type = "text"', {"file_type": "markdown"}, set()),
        ('filters = ["tag=vaultlike"]', {}, {"keys.md"}),
        ('filters = ["tag=vaultlike"]', {"filters": ["tag=payroll"]}, set()),
        ('name = "keys"', {"name": "bread"}, set()),
        ('docs = ["keys.md"]', {"role": "guest"}, set()),
        ('after = "2001"', {"after": "1999", "name": "keys"}, {"keys.md"}),
        ('after = "2999"', {"after": "1999"}, set()),
        ('before = "1999"', {"before": "2999"}, set()),
        ('dataset = "notes"', {"dataset": ["notes"], "name": "keys"}, {"keys.md"}),
    ],
)
def test_an_agent_narrows_what_a_call_asks_for_and_never_widens_it(
    project, agents, retrieval, params, paths
):
    folder = agents(narrow=f"[retrieval]\n{retrieval}")
    try:
        given = answer(project, folder, "keys bread flour salary", agent="narrow", **params)
    except InputError:
        assert not paths  # a document that the role does not see is none
    else:
        assert {one.path for one in given.results} == paths


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
