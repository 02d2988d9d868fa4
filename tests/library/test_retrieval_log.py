"""``logs/retrieval.log``: what went otherwise than set, without a word of what was asked."""

import logging
import re

import httpx
import pytest
from qdrant_client.http.exceptions import ResponseHandlingException

from catalog.core.errors import EngineLockedError, InputError
from catalog.core.retrieval_events import error_text
from catalog.core.settings import RAGv2Settings, Settings
from catalog.embedding.model import EmbeddingModel
from catalog.embedding.served_model import ServedEncoder
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.search_v2.service import SearchServiceV2
from catalog.store.vectors.flat import Vectors
from catalog.store.vectors.qdrant import QdrantServer, open_client
from embedding_server import running_server, status
from fakes import WordEncoder

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ search=(\S+) (\w+) step=(\w+): (.*)")


@pytest.fixture
def home(tmp_path):
    """Opens a service over a home with one small dataset; closes it at the end."""
    opened = []
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "keys.md").write_text("# Keys\n\nRotate the keys every ninety days.\n")

    def make(name="one", *, is_on=True):
        rag = RAGv2Settings(vector_engine="flat", chunk_size=100, chunk_overlap=10)
        settings = Settings(home=tmp_path / name, rag_v2=rag, log={"retrieval": is_on})
        encoder = WordEncoder()
        library = Library(settings, model=EmbeddingModel(encoder))
        Indexer(library).build(tmp_path / "notes", "notes")
        opened.append(SearchServiceV2(library))
        return opened[-1], encoder

    yield make
    for service in opened:
        service.close()


def files_open():
    handlers = logging.getLogger("catalog.retrieval").handlers
    return [one for one in handlers if str(getattr(one, "baseFilename", "")).endswith("val.log")]


def lines(service):
    file = service.library.settings.home / "logs" / "retrieval.log"
    return [LINE.fullmatch(line).groups() for line in file.read_text().splitlines()]


def test_a_leg_that_fails_is_a_line_with_the_classes_of_its_errors_and_no_word_of_the_query(home):
    service, encoder = home()
    encoder.down = True
    assert service.search("walrus keys", dataset="notes")
    (line,) = lines(service)
    assert line[1:3] == ("failed", "vector")
    assert line[3].startswith("EmbeddingError")
    assert "walrus" not in " ".join(line)


def test_what_one_search_tells_has_one_id_and_the_next_ones_another(home):
    service, encoder = home()
    encoder.down = True
    service.search("keys", dataset="notes")
    service.retrieve("keys days", dataset="notes")
    first, second = lines(service)
    assert first[0] != second[0]
    assert "-" not in (first[0], second[0])


def test_a_search_that_fails_whole_is_reported_and_a_wrong_call_is_not(home):
    service, encoder = home()
    encoder.down = True
    with pytest.raises(InputError):
        service.search("keys", dataset="none")
    with pytest.raises(Exception, match="no answer"):
        service.search("keys", dataset="notes", mode="vector")
    told = lines(service)
    assert [line[1:3] for line in told] == [("failed", "vector"), ("failed", "search")]
    assert len({line[0] for line in told}) == 1


def test_an_index_that_another_process_holds_is_a_degraded_search(home, monkeypatch):
    service, _ = home()
    rank, calls = Vectors.rank, []

    def held_at_first(vectors, *arguments):
        calls.append(vectors)
        if len(calls) == 1:
            raise EngineLockedError("held")
        return rank(vectors, *arguments)

    monkeypatch.setattr(Vectors, "rank", held_at_first)
    assert service.search("keys", dataset="notes")
    (line,) = lines(service)
    assert line[1:3] == ("degraded", "vector")


def test_a_call_to_qdrant_that_is_made_again_is_reported_with_what_failed(home):
    service, _ = home()
    attempts = []

    def away_once():
        attempts.append(1)
        if len(attempts) == 1:
            raise httpx.ConnectError("refused: key=secret")
        return "there"

    server = QdrantServer(open_client("http://somewhere", None, 5), sleep=lambda _: None)
    assert server.call(away_once) == "there"
    (line,) = lines(service)
    assert line[:3] == ("-", "retried", "qdrant")
    assert re.fullmatch(r"ConnectError, attempt 1, trying again in \d\.\d s", line[3])


def test_an_error_is_told_down_to_the_number_that_the_system_gave():
    refused = ConnectionRefusedError(111, "no: secret")
    outer = ResponseHandlingException(httpx.ConnectError("secret"))
    outer.source.__cause__ = refused
    assert error_text(outer) == (
        "ResponseHandlingException from ConnectError from ConnectionRefusedError 111"
    )


def test_a_request_to_an_embedding_server_that_is_made_again_is_reported_with_its_status(
    home, monkeypatch
):
    service, _ = home()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_server() as server:
        server.faults = [status(429, Retry_After="2")]
        ServedEncoder(server.settings(), sleep=lambda _: None).encode(["vectors"])
    (line,) = lines(service)
    assert line[1:3] == ("retried", "embedding")
    assert re.fullmatch(r"EmbeddingServerError 429, attempt 1, trying again in [23]\.\d s", line[3])


def test_without_the_setting_there_is_no_file_and_after_closing_no_further_line(home):
    service, encoder = home(is_on=False)
    another, _ = home("another")  # nor a line of its searches
    encoder.down = True
    service.search("keys", dataset="notes")
    assert not (service.library.settings.home / "logs").exists()
    assert not (another.library.settings.home / "logs").exists()


def test_two_libraries_of_one_home_write_each_line_once_and_the_last_closes(home):
    first, encoder = home()
    second, _ = home()
    encoder.down = True
    first.search("keys", dataset="notes")
    second.close()
    first.search("keys", dataset="notes")
    assert len(lines(first)) == 2
    first.close()
    assert files_open() == []


def test_a_log_that_was_moved_away_is_created_again_for_its_owner_only(home):
    service, encoder = home()
    encoder.down = True
    service.search("keys", dataset="notes")
    file = service.library.settings.home / "logs" / "retrieval.log"
    file.rename(file.with_suffix(".1"))
    service.search("keys", dataset="notes")
    assert len(lines(service)) == 1
    assert file.stat().st_mode & 0o077 == 0


def test_a_file_that_cannot_be_written_costs_one_warning_and_no_search(home, caplog):
    service, encoder = home()
    encoder.down = True
    (service.library.settings.home / "logs").write_text("a file, where the folder should be")
    assert service.search("keys", dataset="notes")
    assert service.search("keys", dataset="notes")
    warnings = [one for one in caplog.records if "events of searches are lost" in one.message]
    assert len(warnings) == 1
