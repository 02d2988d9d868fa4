"""Texts of any length in the fields and headings of documents, in a store of either kind."""

import random

import pytest
from sqlalchemy import select

from builders import make_database, put
from catalog.core.filters import Condition, Op
from catalog.store.filter_sql import compile_filter
from catalog.store.publish import describe_unfit
from catalog.store.schema import chunks, documents

pytestmark = pytest.mark.both_stores
_letters = random.Random(5)
LONG = "".join(chr(_letters.randrange(0x4E00, 0x9000)) for _ in range(3000))
ALIKE = LONG[:-1] + "!"
SPECIAL = LONG[:2000] + "\0\U0010ffff"


@pytest.fixture
def database(tmp_path):
    opened = make_database(tmp_path)
    for name, value in (("a", LONG), ("b", ALIKE), ("c", "short"), ("d", SPECIAL)):
        put(opened, "notes", name, "words", metadata={"abstract": value}, sections=[value])
    yield opened
    opened.close()


@pytest.mark.parametrize("field", ["abstract", "section"])
@pytest.mark.parametrize(
    ("op", "value", "found"),
    [
        (Op.EQ, LONG, ["a"]),
        (Op.EQ, LONG[:100], []),
        (Op.EQ, SPECIAL, ["d"]),
        (Op.IN, (ALIKE, "short"), ["b", "c"]),
        (Op.IN, (LONG, *map(str, range(600))), ["a"]),
        (Op.NE, LONG, ["b", "c", "d"]),
        (Op.TEXT_MATCH, LONG[-50:-1], ["a", "b"]),
    ],
    ids=lambda item: "",
)
def test_a_value_of_any_length_is_stored_and_found_whole(database, field, op, value, found):
    query = select(documents.c.path).where(
        documents.c.id.in_(
            select(chunks.c.document_id).where(compile_filter(Condition(field, op, value)))
        )
    )
    with database.read() as connection:
        assert sorted(connection.scalars(query)) == found


def test_a_name_too_long_for_an_index_is_reported():
    told = [describe_unfit("good.md", name) for name in ("é" * 800, "é" * 700)]
    assert told[1] is None
    assert "is too long" in told[0]
