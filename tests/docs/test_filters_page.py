"""The worked table of docs/reference/filters.md, asked of a store."""

import re
from pathlib import Path

import pytest

from catalog.library.browse import DocumentCatalog
from catalog.library.indexing import Indexer
from fakes import open_library

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "filters.md").read_text()
HEAD, _, *ROWS = PAGE.partition("## Worked table\n\n")[2].partition("\n\n")[0].splitlines()
CELLS = [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in (HEAD, *ROWS)]
NEGATED = re.compile(r"not \((.*)\)")


@pytest.fixture(scope="module")
def listing(tmp_path_factory):
    """A folder with a document for each column."""
    folder = tmp_path_factory.mktemp("notes")
    for column, tags in enumerate(CELLS[0][1:]):
        said = f"---\n{tags}\n---\n" if tags.startswith("tags:") else ""
        (folder / f"{column}.md").write_text(f"{said}A walrus.\n")
    with open_library(tmp_path_factory.mktemp("home")) as library:
        Indexer(library).build(folder, "notes")
        yield DocumentCatalog(library)


def asked(words):
    """Return the condition as a mapping, its value of the type that the page writes."""
    _, op, *value = words.split(maxsplit=2)
    (text,) = value or ["true"]
    if text.startswith("["):
        return {"tags": {op: [item.strip() for item in text[1:-1].split(",") if item.strip()]}}
    literal = int(text) if text.isdigit() else text.strip('"')
    return {"tags": {op: True if op == "is_empty" else literal}}


@pytest.mark.parametrize("row", CELLS[1:], ids=lambda row: row[0])
def test_the_worked_table_is_what_a_store_answers(listing, row):
    negated = NEGATED.fullmatch(row[0])
    page = listing.query(dataset="notes", filters=asked(negated[1] if negated else row[0]))
    found = {int(entry.path[0]) for entry in page.entries}
    expected = {column for column, answer in enumerate(row[1:]) if answer == "yes"}
    assert (set(range(5)) - found if negated else found) == expected
