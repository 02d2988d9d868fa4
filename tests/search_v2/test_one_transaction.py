"""What a warm search reads: the store's notes, the dataset's state and its passages."""

from sqlalchemy import event

from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library, write


def test_a_warm_search_reads_the_store_by_three_statements(tmp_path):
    write(tmp_path / "notes", a_dot_md="A walrus sings at noon.", b_dot_md="An otter swims.")
    with open_library(tmp_path / "home", vector_engine="flat") as library:
        Indexer(library).build(tmp_path / "notes", "notes")
        service, statements = SearchServiceV2(library), []
        service.search("when does a walrus sing", dataset="notes")

        def note(_connection, _cursor, statement, *_more):
            statements.append(statement)

        event.listen(library.database.engine, "before_cursor_execute", note)
        results = service.search("when does a walrus sing", dataset="notes", explain=True)
    assert results[0].path == "a.md"
    assert {part.leg for part in results[0].explain.contributions} == {"lexical", "vector"}
    assert len(statements) == 3, statements
