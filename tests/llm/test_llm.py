"""Which language model is handed out, and what is said when it cannot be had."""

import sys

import pytest
from llama_index.core.llms import MockLLM

from catalog.core.errors import ConfigError
from catalog.core.settings import LLMSettings
from catalog.llm import get_llm
from tables import table

READY = MockLLM(max_tokens=7)


def make():
    return READY


def make_nothing():
    return "not a model"


def demand(url):
    raise AssertionError(url)


def crash():
    raise OSError("no licence")


async def later():
    return READY


@pytest.fixture
def here(monkeypatch):
    """This module under a name that can be imported."""
    monkeypatch.setitem(sys.modules, "their_models", sys.modules[__name__])


def test_without_a_provider_there_is_no_model():
    assert get_llm(LLMSettings()) is None


def test_the_provider_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("IDX_LLM__PROVIDER", "ollama")
    monkeypatch.setenv("IDX_LLM__MODEL", "qwen3:4b")
    assert get_llm().name == "qwen3:4b"


@pytest.mark.parametrize("given", [{"url": "http://localhost:1/v1"}, {"model": "qwen"}])
def test_a_server_without_its_address_or_model_is_refused(given):
    with pytest.raises(ConfigError, match="IDX_LLM__MODEL"):
        get_llm(LLMSettings(provider="openai", **given))


def test_ollama_needs_a_model_alone_and_takes_another_address():
    with pytest.raises(ConfigError, match="provider ollama needs IDX_LLM__MODEL"):
        get_llm(LLMSettings(provider="ollama"))
    here = get_llm(LLMSettings(provider="ollama", model="qwen3:4b"))
    assert (here.name, here.reply_tokens) == ("qwen3:4b", 400)
    assert here.identity.endswith(" qwen3:4b http://127.0.0.1:11434/v1")
    there = get_llm(LLMSettings(provider="ollama", model="m", url="http://u:pw@gpu:1/v1"))
    assert there.identity.endswith(" m http://gpu:1/v1")


def test_an_address_that_is_invalid_or_has_a_user_and_a_key_is_refused():
    with pytest.raises(ConfigError, match="IDX_LLM__URL must be an http"):
        get_llm(LLMSettings(provider="openai", model="m", url="ftp://a"))
    with pytest.raises(ConfigError, match="contains a user, but a key is set"):
        get_llm(LLMSettings(provider="openai", model="m", url="http://u:pw@a", api_key="k"))


@pytest.mark.parametrize("name", ["make", "READY"])
def test_a_dotted_path_gives_a_model_or_makes_one(here, name):
    assert get_llm(LLMSettings(provider=f"their_models:{name}")).given is READY


def test_a_dotted_path_to_a_class_makes_one_of_it(here):
    assert isinstance(get_llm(LLMSettings(provider="their_models:MockLLM")).given, MockLLM)


@table("provider, reason")
def test_a_provider_that_gives_no_model_is_one_clear_error(here, provider, reason):
    with pytest.raises(ConfigError) as raised:
        get_llm(LLMSettings(provider=provider))
    assert reason in str(raised.value)
