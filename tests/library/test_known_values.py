"""A condition on a value that no document has is refused, and the error says what there is."""

import pytest

from builders import put
from catalog.core.errors import UnknownValueError
from catalog.library.browse import DocumentCatalog
from fakes import open_library


@pytest.fixture
def listing(tmp_path):
    with open_library(tmp_path / "home") as library:
        for path, metadata in [
            ("keys.md", {"tags": ("ops", "safety"), "confidentiality": "internal"}),
            ("backups.md", {"tags": ("ops",), "confidentiality": 3}),
            ("zoo.md", {"tags": ("Animals",), "agent_hint": "keeper"}),
        ]:
            put(library.database, "notes", path, "Some text.", metadata=metadata)
        yield DocumentCatalog(library)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"file_type": "dm"}, "no document has the file type 'dm'; file types: md (3)"),
        ({"file_type": "markdwon"}, "; did you mean 'markdown'? file types: md (3)"),
        (
            {"tags": ["ops", "animls"]},
            "no document has the tag 'animls'; tags: ops (2), safety (1)",
        ),
        ({"tags": ["safty"]}, "the tag 'safty'; tags: safety (1), ops (2), Animals (1)"),
        ({"filters": "tag=animal"}, "tags: Animals (1), ops (2), safety (1)"),
        ({"filters": {"tags": {"all": ["ops", "animls"]}}}, "the tag 'animls'; tags: ops (2)"),
        ({"filters": {"tags": ["a", "b"]}}, "no document has the tag 'a' or 'b'; tags"),
        ({"filters": "confidentiality=secret"}, "confidentialities: 3"),
        ({"filters": "source_type=memo"}, "no document has the source type 'memo'; source types"),
        ({"filters": "agent_hint=x"}, "agent hints: keeper (1)"),
        ({"filters": ["tag=ops", "tag=Ops"]}, "tags: ops (2), safety (1)"),
    ],
)
def test_a_value_that_no_document_has_is_refused(listing, asked, told):
    with pytest.raises(UnknownValueError) as refused:
        listing.query(dataset="notes", **asked)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "filters",
    [
        "tag!=nothing",
        {"tags": ["ops", "nothing"]},
        {"tags": []},
        {"tags": {"nin": ["nothing"]}},
        ["tag=ops", "tag=Animals"],
        {"tags": {"all": ["ops", "Animals"]}},
        "confidentiality=3",
        "path=nothing.md",
        "title=nothing",
    ],
)
def test_what_can_be_fulfilled_or_names_no_value_of_few_is_answered(listing, filters):
    listing.query(dataset="notes", filters=filters)


def test_values_that_the_other_conditions_hide_are_not_reported(listing):
    with pytest.raises(UnknownValueError) as refused:
        listing.query(dataset="notes", filters={"path": "zoo.md"}, tags=["oops"])
    assert str(refused.value) == "no document has the tag 'oops'; tags: Animals (1)"


def test_the_twelve_most_used_of_many_tags_are_listed(tmp_path):
    with open_library(tmp_path / "home") as library:
        for number in range(14):
            tags = tuple(f"t{one:02}" for one in range(number + 1))
            put(library.database, "notes", f"{number}.md", "x", metadata={"tags": tags})
        with pytest.raises(UnknownValueError) as refused:
            DocumentCatalog(library).query(dataset="notes", tags=["zzz"])
    assert "tags: t00 (14), t01 (13), " in str(refused.value)
    assert str(refused.value).endswith("t11 (3), …")
