"""A condition on a value that no document has is refused, and the error says what there is."""

import pytest

from builders import put
from catalog.core.errors import UnknownValueError
from catalog.library.browse import DocumentCatalog
from fakes import open_library
from tables import table


@pytest.fixture(scope="module")
def listing(tmp_path_factory):
    with open_library(tmp_path_factory.mktemp("known")) as library:
        for path, metadata in [
            ("keys.md", {"tags": ("ops", "safety"), "confidentiality": "internal"}),
            ("backups.md", {"tags": ("ops",), "confidentiality": 3}),
            ("zoo.md", {"tags": ("Animals",), "agent_hint": "keeper"}),
        ]:
            put(library.database, "notes", path, "Some text.", metadata=metadata)
        for number in range(14):
            tags = tuple(f"t{one:02}" for one in range(number + 1))
            put(library.database, "many", f"{number}.md", "x", metadata={"tags": tags})
        yield DocumentCatalog(library)


@table("asked, told", list)
def test_a_value_that_no_document_has_is_refused(listing, asked, told):
    with pytest.raises(UnknownValueError) as refused:
        listing.query(dataset="notes", **asked)
    assert told in str(refused.value)


@table("filters", list)
def test_what_can_be_fulfilled_or_names_no_value_of_few_is_answered(listing, filters):
    listing.query(dataset="notes", filters=filters)


def test_values_that_the_other_conditions_hide_are_not_reported(listing):
    with pytest.raises(UnknownValueError) as refused:
        listing.query(dataset="notes", filters={"path": "zoo.md"}, tags=["oops"])
    assert str(refused.value) == "no document has the tag 'oops'; tags: Animals (1)"


def test_the_twelve_most_used_of_many_tags_are_listed(listing):
    with pytest.raises(UnknownValueError) as refused:
        listing.query(dataset="many", tags=["zzz"])
    assert "tags: t00 (14), t01 (13), " in str(refused.value)
    assert str(refused.value).endswith("t11 (3), …")
