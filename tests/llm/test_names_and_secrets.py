"""What names a language model, and that no password in an address is shown."""

import json
import logging
import sys
from types import SimpleNamespace

import pytest

from catalog.core.text import strip_userinfo
from catalog.evaluation.backends import Backends
from catalog.interfaces.cli import main
from catalog.interfaces.cli.options import StoreOptions, logged_settings
from fakes import open_library
from tables import table


@table("address, public")
def test_user_and_password_are_left_out_of_an_address(address, public):
    assert strip_userinfo(address) == public


@pytest.mark.parametrize("name", ["httpx", "httpcore"])
def test_the_log_of_a_command_names_no_address_of_a_server(monkeypatch, tmp_path, name):
    monkeypatch.setenv("IDX_LOG_LEVEL", "INFO")
    monkeypatch.setattr(logging.getLogger(name), "level", logging.INFO)
    logged_settings(SimpleNamespace(obj=StoreOptions(tmp_path)))
    assert logging.getLogger(name).level == logging.WARNING


def test_config_shows_no_key_of_a_query(monkeypatch, capsys):
    for name in ("RAG_V2__RERANK_URL", "RAG_V2__QDRANT_URL", "LLM__URL", "EMBEDDING__URL"):
        monkeypatch.setenv(f"IDX_{name}", "http://server:1/v1?key=s3cret#cret")
    for arguments in (["config"], ["config", "--json"]):
        monkeypatch.setattr(sys, "argv", ["catalog", *arguments])
        with pytest.raises(SystemExit):
            main()
        out = capsys.readouterr().out
        assert "http://server:1/v1?***" in out
        assert "cret" not in out


def test_config_shows_no_password(monkeypatch, capsys):
    monkeypatch.setenv("IDX_RAG_V2__RERANK_URL", "http://me:s3cret@ranks/v2")
    monkeypatch.setenv("IDX_RAG_V2__QDRANT_URL", "http://me:s3cret@qdrant:6333")
    monkeypatch.setenv("IDX_LLM__URL", "http://me:s3cret@llm/v1")
    monkeypatch.setenv("IDX_DATABASE_URL", "postgresql://me:s3/cret@db/catalog")
    for arguments in (["config"], ["config", "--json"]):
        monkeypatch.setattr(sys, "argv", ["catalog", *arguments])
        with pytest.raises(SystemExit):
            main()
        out = capsys.readouterr().out
        assert "http://ranks/v2" in out
        assert "http://qdrant:6333" in out
        assert "http://llm/v1" in out
        assert "database" in out.casefold()  # hidden whole: what is in such an address may be a key
        assert "cret" not in out


def test_the_identity_of_a_search_holds_no_password(tmp_path):
    with (
        open_library(tmp_path, rerank_url="http://me:s3cret@ranks/v2") as library,
        Backends(library) as backends,
    ):
        identity = backends.load("v2").identity
    assert identity["rag_v2"]["rerank_url"] == "http://ranks/v2"
    assert identity["rag_v2"]["rrf_k"] == 60
    assert identity["llm"]["provider"] == "none"
    assert "s3cret" not in json.dumps(identity)
