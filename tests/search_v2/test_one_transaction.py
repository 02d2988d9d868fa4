"""What a warm search reads and runs: the store's statements, and how much code it crosses."""

import sys
from pathlib import Path

from sqlalchemy import event

import catalog
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library, write

SOURCE = str(Path(catalog.__file__).parent)
MOST_FILES, MOST_FUNCTIONS = 42, 200  # without lambdas and comprehensions
TEXTS = {
    "a_dot_md": "# Animals\n\nA walrus sings at noon.\n\nIt likes cold water.\n",
    "b_dot_md": "An otter swims.",
}


def test_a_warm_search_reads_by_three_statements_and_crosses_few_files(tmp_path):
    write(tmp_path / "notes", **TEXTS)
    with open_library(tmp_path / "home", vector_engine="flat") as library:
        Indexer(library).build(tmp_path / "notes", "notes")
        service, statements, crossed = SearchServiceV2(library), [], set()

        def search():
            return service.search("when does a walrus sing", dataset="notes", explain=True)

        def note(_connection, _cursor, statement, *_more):
            statements.append(statement)

        def watch(frame, what, _argument):
            code = frame.f_code
            if what == "call" and code.co_filename.startswith(SOURCE):
                crossed.add((code.co_filename, code.co_qualname))

        search()
        event.listen(library.database.engine, "before_cursor_execute", note)
        sys.setprofile(watch)
        try:
            results = search()
        finally:
            sys.setprofile(None)
    assert results[0].path == "a.md"
    assert {part.leg for part in results[0].explain.contributions} == {"lexical", "vector"}
    assert len(statements) == 3, statements
    assert len({file for file, _ in crossed}) <= MOST_FILES
    functions = {name for name in crossed if not name[1].endswith(">")}
    assert 100 < len(functions) <= MOST_FUNCTIONS, len(functions)
