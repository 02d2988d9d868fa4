"""The baseline: what it finds, what it refuses, and that it follows its documents."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata

from builders import drop, make_database, put
from catalog.core.errors import (
    ConfigError,
    EmbeddingError,
    InputError,
    QueryError,
    UnknownDatasetError,
)
from catalog.core.params import MODES
from catalog.core.settings import Settings
from catalog.embedding import EmbeddingModel
from catalog.library.indexing import Indexer
from catalog.search.embed_model import ResilientEmbedding
from catalog.search.models import SearchCriteria
from catalog.search.service import SearchService
from catalog.search_v2.service import SearchServiceV2
from fakes import WordEncoder, open_library


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def database(home):
    opened = make_database(home)
    yield opened
    opened.close()


@pytest.fixture
def indexed(home, notes):
    with open_library(home) as library:
        Indexer(library).build(notes, "notes")
        yield library


@pytest.fixture
def serve(home):
    """Opens services on the home; each has its own model unless given one."""
    opened = []

    def make(encoder=None, **more):
        model = ResilientEmbedding(EmbeddingModel(encoder or WordEncoder()))
        opened.append(SearchService(Settings(home=home), embed_model=model, **more))
        return opened[-1]

    yield make
    for service in opened:
        service.close()


class Judge(CustomLLM):
    """A language model that always gives the same answer."""

    answer: str

    @property
    def metadata(self):
        return LLMMetadata()

    def complete(self, prompt, formatted=False, **_):
        return CompletionResponse(text=self.answer)

    def stream_complete(self, prompt, formatted=False, **_):
        raise NotImplementedError


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_finds_the_document_and_gives_a_part_of_its_text(serve, indexed, notes, mode):
    found = serve().search("bake the bread", dataset="notes", mode=mode)
    assert found[0].path == "bread.txt"
    assert found[0].source_doc_id == "notes:bread.txt"
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))
    for hit in found:
        assert hit.text in (notes / hit.path).read_text()


@pytest.mark.slow
def test_a_long_document_is_cut_and_every_chunk_is_in_it(serve, database):
    text = " ".join(f"Sentence number {i} is about apples." for i in range(1000))
    put(database, "long", "apples.md", text, title="Apples")
    found = serve().search("apples", dataset="long", top_k=50, mode="lexical")
    assert len(found) > 5
    assert all(hit.text in text for hit in found)
    assert len({hit.chunk_id for hit in found}) == len(found)
    assert {hit.chunk_id.rpartition(":")[2] for hit in found} == {str(i) for i in range(len(found))}


def test_a_chunk_is_named_by_the_documents_content_and_its_place(serve, indexed):
    hit = serve().search("bake the bread", dataset="notes")[0]
    v2 = SearchServiceV2(indexed).search("bake the bread", dataset="notes")[0]
    content, _, seq = hit.chunk_id.partition(":")
    assert content.startswith(v2.docid)
    assert seq == "0"


def test_copies_of_one_content_are_all_found(serve, database):
    for path in ("a/copy.md", "b/copy.md"):
        put(database, "copies", path, "The very same words.", title="Copy")
    for mode in MODES:
        found = serve().search("same words", dataset="copies", mode=mode)
        assert sorted(hit.path for hit in found) == ["a/copy.md", "b/copy.md"]


@pytest.mark.slow
def test_top_k_is_kept_to_and_the_legs_go_deeper(serve, database):
    for number in range(70):
        put(database, "many", f"{number}.md", f"apple {number}", title=f"Number {number}")
    service = serve()
    for mode in MODES:
        assert len(service.search("apple", dataset="many", mode=mode, top_k=3)) == 3
        assert len(service.search("apple", dataset="many", mode=mode, top_k=60)) == 60


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "query",
    [
        'bread "unbalanced',
        "bread AND",
        "NEAR(bread flour)",
        "OR NOT bread",
        "title:bread",
        "bread*",
        "-bread",
        "x'; DROP TABLE chunks_fts; -- bread",
        "bread \x00 \ud800",
        "bread 🍞 {a} %s",
        "bread " * 3000 + " ".join(f"w{i}" for i in range(3000)),
    ],
)
def test_any_query_text_is_plain_words(serve, indexed, mode, query):
    found = serve().search(query, dataset="notes", mode=mode)
    assert "bread.txt" in {hit.path for hit in found}
    json.dumps(found.to_dict()["results"])


@pytest.mark.parametrize("query", ["?!*", "🍞", '""', "- -"])
def test_a_query_without_a_word_has_no_lexical_hit(serve, indexed, query):
    service = serve()
    assert len(service.search(query, dataset="notes", mode="lexical")) == 0
    assert len(service.search(query, dataset="notes", mode="hybrid")) > 0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({"query": ""}, QueryError),
        ({"query": " \n\t\x00"}, QueryError),
        ({"query": 7}, InputError),
        ({"dataset": "nope"}, UnknownDatasetError),
        ({"dataset": "../notes"}, UnknownDatasetError),
        ({"dataset": None}, InputError),
        ({"mode": "magic"}, InputError),
        ({"mode": None}, InputError),
        ({"top_k": 0}, InputError),
        ({"top_k": 1001}, InputError),
        ({"top_k": True}, InputError),
        ({"top_k": "3"}, InputError),
        ({"rerank": "yes"}, InputError),
        ({"rerank": True}, ConfigError),
    ],
)
def test_a_bad_call_gets_a_typed_error(serve, indexed, call, error):
    with pytest.raises(error) as raised:
        serve().search(**{"query": "bread", "dataset": "notes", **call})
    assert type(raised.value) is error


def test_an_unknown_dataset_is_answered_with_those_there_are(serve, indexed, home):
    with pytest.raises(UnknownDatasetError, match=r"datasets: notes$"):
        serve().search("bread", dataset="nope")
    assert not (home / "v1" / "nope").exists()


def test_a_dataset_whose_name_is_no_folder_name_is_refused(serve, database, home):
    put(database, "../out", "a.md", "words")
    with pytest.raises(InputError, match="letters"):
        serve().search("words", dataset="../out")
    assert not (home / "out").exists()


def test_criteria_ask_the_same_as_arguments(serve, indexed):
    service = serve()
    criteria = SearchCriteria(query="keys", dataset="notes", top_k=2, mode="vector")
    one = service.search(criteria)
    two = service.search("keys", dataset="notes", top_k=2, mode="vector")
    assert one.to_dict()["results"] == two.to_dict()["results"]
    assert (one.query, one.dataset, one.mode) == ("keys", "notes", "vector")


def test_an_empty_dataset_answers_nothing(serve, database):
    put(database, "empty", "a.md", "words")
    drop(database, "empty", "a.md")
    put(database, "blank", "b.md", " \n ")
    for mode in MODES:
        assert len(serve().search("words", dataset="empty", mode=mode)) == 0
        assert len(serve().search("words", dataset="blank", mode=mode)) == 0


def test_no_title_or_path_is_too_long_for_the_splitter(serve, database, capsys):
    title, path = "heading " * 5000, "folder/" * 500 + "a.md"
    put(database, "long", path, "apples and pears", title=title)
    hit = serve().search("pears", dataset="long")[0]
    assert (hit.title, hit.path) == (title, path)
    assert capsys.readouterr().out == ""


def test_one_dataset_does_not_answer_for_another(serve, database):
    put(database, "one", "a.md", "apples")
    put(database, "two", "b.md", "apples")
    service = serve()
    assert {hit.path for hit in service.search("apples", dataset="one")} == {"a.md"}
    assert {hit.path for hit in service.search("apples", dataset="two")} == {"b.md"}


@pytest.mark.parametrize("mode", MODES)
def test_a_changed_added_or_removed_document_is_followed(serve, database, mode):
    put(database, "notes", "a.md", "apples", title="A")
    put(database, "notes", "b.md", "bananas", title="B")
    service = serve()

    def texts():
        return sorted(hit.text for hit in service.search("fruit", dataset="notes", mode="vector"))

    service.search("apples", dataset="notes", mode=mode)
    put(database, "notes", "a.md", "cherries", title="A")
    assert service.search("cherries", dataset="notes", mode=mode)[0].text == "cherries"
    assert texts() == ["bananas", "cherries"]
    drop(database, "notes", "a.md")
    put(database, "notes", "c.md", "dates", title="C")
    assert texts() == ["bananas", "dates"]


def test_another_model_means_a_new_index(serve, database, home):
    put(database, "notes", "a.md", "apples")
    stamp = home / "v1" / "notes" / "stamp.json"
    serve().index("notes")
    first = json.loads(stamp.read_text())
    other = WordEncoder()
    other.fingerprint = "words-2"
    serve(other).index("notes")
    assert json.loads(stamp.read_text()) == {**first, "embedding": "words-2"}
    assert "apples" in other.texts[0]


def test_a_new_store_in_the_same_folder_means_a_new_index(serve, home):
    for text in ("apples", "pears"):
        fresh = make_database(home)
        put(fresh, "notes", "a.md", text)  # the same name, time and generation
        fresh.close()
        service = serve()
        assert [hit.text for hit in service.search("fruit", dataset="notes")] == [text]
        service.close()
        for file in home.glob("catalog.db*"):
            file.unlink()


def test_an_index_that_is_current_is_not_built_again(serve, indexed):
    serve().index("notes")
    encoder = WordEncoder()
    service = serve(encoder)
    service.search("bread", dataset="notes")
    service.search("keys", dataset="notes")
    assert encoder.texts == ["bread", "keys"]


class Watcher:
    def __init__(self):
        self.total, self.labels, self.done = 0, [], 0

    def start(self, total):
        self.total = total

    def advance(self, amount, label):
        self.done += amount
        self.labels.append(label)


@pytest.mark.slow
def test_an_indexing_run_tells_how_far_it_is(serve, database):
    for number in range(70):
        put(database, "many", f"{number:02}.md", "text " * number + "end")
    watcher = Watcher()
    serve().index("many", watcher)
    assert watcher.done == watcher.total == sum(len("text " * n + "end") for n in range(70))
    assert watcher.labels == ["31.md", "63.md", "69.md"]


def test_services_that_start_at_once_build_one_index_and_agree(serve, indexed):
    encoders = [WordEncoder() for _ in range(4)]
    services = [serve(encoder) for encoder in encoders]
    start = threading.Barrier(len(services))

    def ask(service):
        start.wait()
        return service.search("rotate keys", dataset="notes").to_dict()["results"]

    with ThreadPoolExecutor(len(services)) as pool:
        answers = list(pool.map(ask, services))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0]["path"] == "keys.md"
    built = [encoder for encoder in encoders if encoder.texts != ["rotate keys"]]
    assert len(built) == 1


def test_a_service_answers_while_another_replaces_the_index(serve, database):
    put(database, "notes", "a.md", "apples")
    reader, writer = serve(), serve()
    reader.index("notes")
    held = reader._indexes["notes"]
    put(database, "notes", "a.md", "pears")
    writer.index("notes")
    assert held.chunks.search("apples", 5)
    assert not held.chunks.search("pears", 5)
    assert reader.search("pears", dataset="notes")[0].text == "pears"


KILLED = """
import os, signal, sys
from pathlib import Path
from catalog.core.settings import Settings
from catalog.embedding import EmbeddingModel
from catalog.search.embed_model import ResilientEmbedding
from catalog.search.service import SearchService
from fakes import WordEncoder

class Killer(WordEncoder):
    def encode(self, texts):
        os.kill(os.getpid(), signal.SIGKILL)

model = ResilientEmbedding(EmbeddingModel(Killer()))
service = SearchService(Settings(home=Path(sys.argv[1])), embed_model=model)
service.index("notes")
"""


@pytest.mark.slow
def test_a_build_that_was_killed_leaves_nothing_half_made(serve, indexed, home, notes):
    serve().index("notes")
    (notes / "new.md").write_text("A new note on pears.")
    Indexer(indexed).update("notes")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(home)],
        check=False,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == -signal.SIGKILL
    assert (home / "v1" / ".notes.building").is_dir()
    assert serve().search("pears", dataset="notes", mode="lexical")[0].path == "new.md"
    assert not (home / "v1" / ".notes.building").exists()


def test_a_swap_that_was_killed_halfway_is_healed(serve, indexed, home):
    root = home / "v1"
    serve().index("notes")
    (root / "notes").rename(root / ".notes.replaced")
    (root / ".notes.building").mkdir()
    (root / ".notes.building" / "chunks.db").write_bytes(b"half")
    assert serve().search("bread", dataset="notes")[0].path == "bread.txt"
    assert {path.name for path in root.iterdir()} - {".notes.lock"} == {"notes"}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("stamp.json", b"{}"),
        ("stamp.json", b"\xff"),
        ("chunks.db", b""),
        ("chunks.db", b"not a database at all" * 100),
        ("vectors/docstore.json", b"{"),
        ("vectors/index_store.json", b"{}"),
        ("vectors/default__vector_store.json", None),
    ],
)
def test_a_damaged_index_is_rebuilt(serve, indexed, home, file, content):
    serve().index("notes")
    damaged = home / "v1" / "notes" / file
    if content is None:
        damaged.unlink()
    else:
        damaged.write_bytes(content)
    assert serve().search("bake bread", dataset="notes")[0].path == "bread.txt"


def test_a_model_that_fails_during_a_build_leaves_the_old_index_and_no_rubbish(
    serve, database, home
):
    put(database, "notes", "a.md", "apples")
    serve().index("notes")
    before = (home / "v1" / "notes" / "stamp.json").read_bytes()
    put(database, "notes", "b.md", "POISON")
    with pytest.raises(EmbeddingError, match="cannot embed this"):
        serve().search("apples", dataset="notes")
    assert (home / "v1" / "notes" / "stamp.json").read_bytes() == before
    assert not (home / "v1" / ".notes.building").exists()
    drop(database, "notes", "b.md")
    assert serve().search("apples", dataset="notes")[0].path == "a.md"


def test_a_closed_service_may_be_used_again(serve, indexed):
    service = serve()
    one = service.search("bread", dataset="notes").to_dict()["results"]
    service.close()
    service.close()
    assert service.search("bread", dataset="notes").to_dict()["results"] == one


def test_reranking_orders_by_the_models_relevance_and_drops_what_it_leaves_out(serve, indexed):
    judge = Judge(answer="Doc: 3, Relevance: 9\nDoc: 1, Relevance: 4")
    service = serve(llm=judge)
    plain = service.search("keys bread backups", dataset="notes")
    ranked = service.search("keys bread backups", dataset="notes", rerank=True)
    assert [hit.path for hit in ranked] == [plain[2].path, plain[0].path]
    assert [(hit.rank, hit.score) for hit in ranked] == [(1, 9.0), (2, 4.0)]
    with pytest.raises(ConfigError, match="llm="):
        serve().search("keys", dataset="notes", rerank=True)


def test_reranking_can_bring_in_what_stood_below_top_k(serve, indexed):
    service = serve(llm=Judge(answer="Doc: 3, Relevance: 9"))
    for mode in ("vector", "hybrid"):
        plain = service.search("keys bread backups", dataset="notes", mode=mode)
        ranked = service.search(
            "keys bread backups", dataset="notes", mode=mode, top_k=1, rerank=True
        )
        assert [hit.path for hit in ranked] == [plain[2].path]


def test_the_json_form_is_a_part_of_v2s(serve, indexed):
    one = serve().search("keys", dataset="notes").to_dict()
    two = SearchServiceV2(indexed).search("keys", dataset="notes", explain=True).to_dict()
    assert set(one) == {"query", "dataset", "mode", "results", "elapsed_ms"}
    assert set(one["results"][0]) == {
        "rank", "score", "path", "source_doc_id", "chunk_id", "title", "text",
    }  # fmt: skip
    assert set(one) < set(two)
    assert set(one["results"][0]) < set(two["results"][0])
    assert json.loads(json.dumps(one)) == one
