"""Where the home is, and when two processes have the same settings."""

from pathlib import Path

import pytest

from catalog.core.errors import ConfigError
from catalog.core.files import default_home, home_folder, settings_file, settings_key
from catalog.core.settings import load_settings


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in ("IDX_HOME", "IDX_CONFIG", "IDX_PRESET"):
        monkeypatch.delenv(name, raising=False)


def key(home, preset=None, **variables):
    return settings_key(home, preset, variables)


def test_the_home_is_the_one_chosen_then_the_variable_then_the_users_folder(monkeypatch, tmp_path):
    assert home_folder() == default_home()
    monkeypatch.setenv("IDX_HOME", str(tmp_path))
    assert home_folder() == tmp_path
    assert home_folder(Path("other")) == Path("other")


@pytest.mark.parametrize("text", ["~/n", "$HOME/n", "${HOME}/n"])
def test_a_home_and_other_paths_may_begin_as_in_a_shell(monkeypatch, tmp_path, text):
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "catalog.toml").write_text(f"[answers]\nagents = '{text}'")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_settings(overrides={"home": text}).settings.home == tmp_path / "n"
    monkeypatch.setenv("IDX_HOME", text)
    assert home_folder() == tmp_path / "n" == load_settings().settings.answers.agents
    monkeypatch.setenv("IDX_CONFIG", f"{text}/catalog.toml")
    assert settings_file(Path()) == tmp_path / "n" / "catalog.toml"


def test_the_settings_file_is_the_one_named_or_the_one_in_the_home(monkeypatch, tmp_path):
    assert settings_file(tmp_path) is None
    (tmp_path / "catalog.toml").write_text("")
    assert settings_file(tmp_path) == tmp_path / "catalog.toml"
    monkeypatch.setenv("IDX_CONFIG", "/elsewhere.toml")
    assert settings_file(tmp_path) == Path("/elsewhere.toml")


def test_a_home_that_cannot_be_looked_into_is_reported(tmp_path):
    home = tmp_path / ("x" * 300)  # no folder can have so long a name
    with pytest.raises(ConfigError, match="too long"):
        settings_file(home)
    with pytest.raises(ConfigError):
        key(home)


def test_keys_are_equal_when_nothing_that_shapes_an_answer_differs(tmp_path):
    one = key(tmp_path, IDX_RAG_V2__RRF_K="17", PATH="/bin")
    assert one == key(tmp_path / ".", IDX_RAG_V2__RRF_K="17", PATH="/usr/bin", IDX_HOME="x")
    assert one == key(
        tmp_path,
        IDX_RAG_V2__RRF_K="17",
        IDX_LOG_LEVEL="DEBUG",
        IDX_SERVE__TOKEN="a secret of its own",
    )


def test_any_other_setting_preset_file_or_home_makes_another_key(tmp_path):
    keys = [key(tmp_path), key(tmp_path, IDX_RAG_V2__RRF_K="17"), key(tmp_path, "vault")]
    keys += [key(tmp_path, IDX_RAG_V2__RRF_K="18"), key(tmp_path / "other")]
    (tmp_path / "catalog.toml").write_text("log_level = 'INFO'")
    keys.append(key(tmp_path))
    (tmp_path / "catalog.toml").write_text("log_level = 'DEBUG'")
    keys.append(key(tmp_path))
    assert len(set(keys)) == len(keys)


def test_a_preset_counts_the_same_from_an_option_and_from_the_environment(tmp_path):
    assert key(tmp_path, "vault") == key(tmp_path, IDX_PRESET="vault")
    assert key(tmp_path, "vault", IDX_PRESET="book") == key(tmp_path, "vault")
