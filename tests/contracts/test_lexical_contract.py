"""Our keyword engines keep the contract of ``catalog.testing``."""

from pathlib import Path

import pytest

from catalog.core.entry_points import load_engine
from catalog.core.errors import ConfigError
from catalog.store.database import Database
from catalog.store.lexical.bm25 import Bm25Engine, WordIndex
from catalog.store.lexical.fts import FtsEngine
from catalog.testing.lexical import LexicalContract

pytestmark = pytest.mark.both_stores
pytest.mark.of_sqlite(LexicalContract.test_any_text_can_be_indexed)
for _slow in (
    LexicalContract.test_any_history_leaves_exactly_the_live_chunks_findable,
    LexicalContract.test_readers_are_right_while_a_writer_works,
):
    pytest.mark.slow(pytest.mark.of_sqlite(_slow))


@pytest.mark.of_sqlite  # it reads passages alone, which test_all_combinations does from both
class TestBm25(LexicalContract):
    def open_engine(self, database: Database, dataset: str, folder: Path):
        return Bm25Engine(WordIndex(database, dataset, folder))


class TestFullText(LexicalContract):
    def open_engine(self, database: Database, dataset: str, folder: Path):
        return FtsEngine(database, dataset)


def test_an_unknown_engine_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match="bm25, fts"):
        load_engine("catalog.lexical", "whoosh")
