"""Nothing an agent asks waits for a process that is writing."""

import pytest

from catalog.interfaces.calls import LocalEngine
from catalog.library.indexing import Indexer
from catalog.store.database import Database
from fakes import open_library
from stores import open_store

NOTES = {"notes/a.md": "alpha first", "notes/b.md": "alpha second"}
QUESTIONS = {
    "search": {"query": "alpha", "top_k": 5}, "get": {"reference": "a.md"},
    "multi_get": {"patterns": ["*.md"]}, "browse": {"query": "alpha"}, "status": {},
}  # fmt: skip


@pytest.mark.parametrize("verb", QUESTIONS)
@pytest.mark.parametrize("was_open", [True, False], ids=["open", "fresh"])
def test_it_is_answered_while_another_process_writes(verb, was_open, tmp_path, monkeypatch):
    engine = LocalEngine(open_store(NOTES, tmp_path))
    if was_open:
        engine.ask("search", QUESTIONS["search"])  # from here on the vector index is its own
    (tmp_path / "notes/a.md").write_text("alpha changed")
    with open_library(tmp_path / "home") as other:
        Indexer(other).update("notes")
        with other.database.write():
            waits = writes_noted(monkeypatch)
            answer = engine.ask(verb, QUESTIONS[verb])
            engine.close()
    assert not any(waits)
    assert "failed" not in [stage["status"] for stage in answer.get("stages", [])]


def writes_noted(monkeypatch):
    """For each transaction that writes from now on, whether it waits for the lock."""
    waits = []
    real = Database.write

    def noted(self, *, wait=True):
        waits.append(wait)
        return real(self, wait=wait)

    monkeypatch.setattr(Database, "write", noted)
    return waits
