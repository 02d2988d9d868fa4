"""Settings: precedence, bounds, unknown names, and where each value came from."""

import json
from operator import attrgetter

import pytest

from catalog.core.agents import read_agent
from catalog.core.errors import ConfigError
from catalog.core.files import default_home, home_folder, settings_key
from catalog.core.settings import LLMSettings, RAGv2Settings, get_settings, load_settings
from tables import table


def test_the_defaults_are_the_seeds():
    rag = RAGv2Settings()
    assert (rag.chunk_size, rag.chunk_overlap) == (800, 120)
    assert (rag.vector_top_k, rag.fts_top_k, rag.fusion_top_k, rag.rrf_k) == (20, 20, 30, 60)
    assert (rag.original_weight, rag.expansion_weight) == (2.0, 1.0)
    assert (rag.bonus_first, rag.bonus_second) == (0.05, 0.02)
    assert rag.rerank_candidates == 3  # the seed's 40 cost many times as much and find no more
    assert rag.cache_ttl_seconds == 7 * 24 * 3600


def test_the_address_of_a_qdrant_server_chooses_qdrant_unless_an_engine_is_named():
    url = "http://localhost:6333"
    assert RAGv2Settings().vector_engine == "flat"
    assert RAGv2Settings(qdrant_url=url).vector_engine == "qdrant"
    assert RAGv2Settings(qdrant_url=url, vector_engine="flat").vector_engine == "flat"


def test_the_environment_reaches_every_level(monkeypatch):
    monkeypatch.setenv("IDX_RAG_V2__CHUNK_SIZE", "500")
    monkeypatch.setenv("IDX_RAG_V2__INGEST__LOCK_SECONDS", "3")
    monkeypatch.setenv("IDX_EMBEDDING__BATCH_SIZE", "8")
    settings = get_settings()
    assert settings.rag_v2.chunk_size == RAGv2Settings().chunk_size == 500
    assert settings.rag_v2.ingest.lock_seconds == 3
    assert settings.embedding.batch_size == 8


def test_argument_beats_environment_beats_file_beats_preset_beats_default(tmp_path, monkeypatch):
    file = tmp_path / "mine.toml"
    file.write_text("[rag_v2]\nrrf_k = 30\nfts_top_k = 31\nvector_top_k = 32\n")
    monkeypatch.setenv("IDX_CONFIG", str(file))
    monkeypatch.setenv("IDX_RAG_V2__FTS_TOP_K", "41")
    monkeypatch.setenv("IDX_RAG_V2__VECTOR_TOP_K", "42")
    loaded = load_settings(preset="default", overrides={"rag_v2": {"vector_top_k": 52}})
    rag, origins = loaded.settings.rag_v2, loaded.origins
    assert (rag.vector_top_k, rag.fts_top_k, rag.rrf_k) == (52, 41, 30)
    assert origins["rag_v2.vector_top_k"] == "argument"
    assert origins["rag_v2.fts_top_k"] == "environment"
    assert origins["rag_v2.rrf_k"] == str(file)
    assert origins["rag_v2.chunk_size"] == "preset default"
    assert "rag_v2.max_query_chars" not in origins


@table("variable, value")
def test_a_variable_that_names_no_setting_is_an_error(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=variable) as refused:
        get_settings()
    assert "IDX_SERVE__TOKEN" in str(refused.value) or variable != "IDX_SERVE_TOKEN"


@pytest.mark.parametrize("variable", ["IDX_SERVICE_HOST", "IDX_PORT_80_TCP", "IDX_ANYTHING"])
def test_a_variable_of_another_program_stops_nothing(monkeypatch, variable):
    monkeypatch.setenv(variable, "x")
    assert get_settings()


@table("name, value")
def test_a_value_out_of_bounds_is_an_error_that_names_it(monkeypatch, name, value):
    monkeypatch.setenv(f"IDX_RAG_V2__{name}", value)
    with pytest.raises(ConfigError, match=name.lower()):
        get_settings()
    monkeypatch.delenv(f"IDX_RAG_V2__{name}")
    monkeypatch.setenv("IDX_RAG_V2__CHUNK_SIZ", "500")
    with pytest.raises(ConfigError, match="CHUNK_SIZ"):  # for the v2 settings alone
        RAGv2Settings()


@table("text, wrong, right")
def test_an_unknown_key_in_a_file_is_an_error(tmp_path, monkeypatch, text, wrong, right):
    file = tmp_path / "catalog.toml"
    file.write_text(text)
    monkeypatch.setenv("IDX_HOME", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        get_settings()
    assert str(caught.value) == f"no setting {wrong} ({file}): did you mean {right}?"


@pytest.mark.parametrize("name", ["IDX_RAG_V2__CHUNK_SIZE", "IDX_HOME", "IDX_CONFIG"])
def test_a_variable_in_small_letters_is_an_error(monkeypatch, name):
    monkeypatch.setenv(name.lower(), "77")
    with pytest.raises(ConfigError, match=f"capitals: {name}"):
        load_settings()


def test_a_preset_is_named_by_argument_variable_or_file_and_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("IDX_HOME", str(tmp_path))
    assert load_settings().settings.preset is None
    (tmp_path / "catalog.toml").write_text('preset = "rrf"\n')
    loaded = load_settings()
    assert (loaded.settings.preset, loaded.settings.rag_v2.fusion_mode) == ("rrf", "rrf")
    assert loaded.origins["preset"] == str(tmp_path / "catalog.toml")
    monkeypatch.setenv("IDX_PRESET", "projects")
    assert load_settings().settings.preset == "projects"
    settings = load_settings(preset="vault").settings
    assert (settings.preset, settings.rag_v2.chunk_min_size) == ("vault", 300)
    monkeypatch.setenv("IDX_PRESET", "")
    assert load_settings().settings.preset == "rrf"
    (tmp_path / "catalog.toml").write_text("preset = 3\n")
    with pytest.raises(ConfigError, match="no preset 3"):
        load_settings()
    with pytest.raises(ConfigError, match="default"):
        load_settings(preset="nope")
    assert load_settings(preset="default").settings.rag_v2 == RAGv2Settings()
    monkeypatch.setenv("IDX_HOME", "")
    assert load_settings().settings.home == home_folder() == default_home()


@table("variable, setting")
def test_an_empty_variable_is_as_one_that_is_not_set(monkeypatch, variable, setting):
    monkeypatch.delenv(variable, raising=False)
    value = attrgetter(setting)
    before, key = value(load_settings().settings), settings_key(default_home(), None)
    monkeypatch.setenv(variable, "")
    assert value(load_settings().settings) == before
    assert settings_key(default_home(), None) == key
    assert RAGv2Settings() == load_settings().settings.rag_v2


def test_a_settings_file_may_begin_with_a_byte_order_mark(tmp_path, monkeypatch):
    monkeypatch.setenv("IDX_HOME", str(tmp_path))
    text = "[rag_v2]\ntop_k = 7\n[agents.me]\npersona = 'terse'\n"
    (tmp_path / "catalog.toml").write_text(text, encoding="utf-8-sig")
    settings = load_settings().settings
    assert (settings.rag_v2.top_k, read_agent(settings, "me").persona) == (7, "terse")
    (tmp_path / "agents").mkdir()
    agent = tmp_path / "agents" / "you.toml"
    agent.write_text("persona = 'kind'\n", encoding="utf-8-sig")
    assert read_agent(settings, "you").persona == "kind"


def test_lists_are_texts_with_marks_between_or_json(monkeypatch):
    roles = ("employee: public", "lead: public, secret")
    for text in ("employee: public; lead: public, secret", json.dumps(roles)):
        monkeypatch.setenv("IDX_ANSWERS__ROLES", text)
        assert load_settings().settings.answers.roles == roles
    monkeypatch.setenv("IDX_LOG__VERBS", '["ask", "search"]')
    assert load_settings().settings.log.verbs == ("ask", "search")


@table("variable, text, said")
def test_a_value_that_is_not_a_list_is_refused_with_the_right_form(
    monkeypatch, variable, text, said
):
    monkeypatch.setenv("IDX_ANSWERS__ROLES", "employee: public; lead: public, internal")
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError, match=said):
        load_settings()


def test_prices_are_those_of_the_model_named_even_with_a_colon_in_its_name():
    llm = LLMSettings(prices="gpt: 0.5, 2; llama3:8b: 0, 0.1")
    assert llm.cost("gpt", 1_000_000, 500_000) == 1.5
    assert llm.cost("llama3:8b", 9, 1_000_000) == 0.1
    assert llm.cost("llama3", 1, 1) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [("a = " + "[" * 100_000, "nests too deeply"), ("rrf_k = \n", r"catalog\.toml")],
)
def test_a_settings_file_that_cannot_be_read_is_reported_in_a_sentence(tmp_path, text, said):
    (tmp_path / "catalog.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_settings(overrides={"home": tmp_path})


def test_the_level_of_messages_may_be_in_any_case(monkeypatch):
    monkeypatch.setenv("IDX_LOG_LEVEL", "debug")
    assert load_settings().settings.log_level == "DEBUG"
    monkeypatch.setenv("IDX_LOG_LEVEL", "loud")
    with pytest.raises(ConfigError, match="'DEBUG', 'INFO', 'WARNING' or 'ERROR'"):
        load_settings()


def test_settings_are_read_again_only_when_something_changed(tmp_path, monkeypatch):
    first = get_settings()
    assert get_settings() is first
    for variable, value in (("IDX_RAG_V2__RRF_K", "7"), ("IDX_LOG_LEVEL", "DEBUG")):
        before = get_settings()
        monkeypatch.setenv(variable, value)
        assert get_settings() != before
    file = tmp_path / "home" / "catalog.toml"
    file.parent.mkdir(exist_ok=True)
    for size in (300, 400):  # of one length, whatever the time of the change
        file.write_text(f"[rag_v2]\nchunk_size = {size}\n")
        assert get_settings().rag_v2.chunk_size == size
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "other"))
    assert get_settings().rag_v2.chunk_size == RAGv2Settings().chunk_size


def test_a_section_that_is_no_table_is_refused_without_its_value(monkeypatch):
    monkeypatch.setenv("IDX_LLM", '["zqsecret"]')
    with pytest.raises(ConfigError, match="setting llm") as error:
        load_settings()
    assert "zqsecret" not in str(error.value)
