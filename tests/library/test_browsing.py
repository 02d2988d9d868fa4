"""The catalog of documents: what it lists, in which order, and what it says of each."""

import json
import os

import pytest

from builders import drop, put
from catalog.core.errors import (
    FilterError,
    InputError,
    UnknownDatasetError,
    UnknownFieldError,
    UnknownValueError,
)
from catalog.library.browse import DocumentCatalog
from catalog.library.get import find_document
from catalog.library.indexing import Indexer
from catalog.store import Database
from fakes import open_library, write
from stores import open_store
from tables import table

pytestmark = pytest.mark.both_stores


@pytest.fixture
def library(tmp_path):
    with open_library(tmp_path / "home") as opened:
        yield opened


def put_known(library):
    """Put documents of known dates, tags and sizes."""
    for path, title, size, metadata in [
        ("guides/keys.md", "Keys", 40, {"tags": ("ops", "safety"), "modified": "2024-03-01"}),
        ("Bread.md", "On bread", 90, {"tags": ("food",), "created": "2023-01-05"}),
        (
            "about keys.md",
            "A note",
            10,
            {"tags": ("ops",), "modified": "2024-03-01T23:30:00-02:00"},
        ),
        ("zoo.md", "Animals", 20, {}),
    ]:
        put(library.database, "notes", path, "word " * size, title=title, metadata=metadata)
    return library


@pytest.fixture
def own_listing(library):
    """For a test that changes its store."""
    return DocumentCatalog(put_known(library))


@pytest.fixture(scope="module")
def shared(store_kind, tmp_path_factory):
    with open_library(tmp_path_factory.mktemp("shared")) as opened:
        yield put_known(opened)


@pytest.fixture
def listing(shared):
    """A catalog over documents of known dates, tags and sizes that no test changes."""
    return DocumentCatalog(shared)


def paths(page):
    return [entry.path for entry in page.entries]


def test_an_entry_tells_what_a_person_wants_to_know_of_a_document(library, tmp_path):
    folder = tmp_path / "folder"
    text = (
        "---\ntags: [ops, security]\ncreated: 2024-01-02\n---\n# Keys\n\n"
        "Rotate the keys every ninety days.\n"
    )
    write(folder, guides__keys_dot_md=text, long_dot_md="One walrus after another. " * 100)
    Indexer(library).build(folder, "notes")
    page = DocumentCatalog(library).query(dataset="notes", query="keys")
    (entry,) = page.entries
    assert entry.summary == "Rotate the keys every ninety days."
    assert (entry.source_doc_id, entry.dataset) == ("notes:guides/keys.md", "notes")
    assert (entry.title, entry.file_type, entry.tags) == ("Keys", "md", ("ops", "security"))
    assert (entry.created, entry.chunks) == ("2024-01-02", 1)
    assert entry.modified is not None
    assert (entry.bytes, entry.characters) == (len(text), len(text))
    assert (page.total, page.types, page.notes) == (1, {"md": 1}, ())
    (long,) = DocumentCatalog(library).query(dataset="notes", query="walrus").entries
    assert 250 < len(long.summary) <= 300  # the first characters of a long one
    assert long.summary.endswith("…")
    assert json.loads(json.dumps(page.to_dict())) == page.to_dict()
    assert page.to_dict()["entries"][0]["path"] == "guides/keys.md"


def test_without_a_query_documents_come_by_name_whatever_its_case(listing):
    page = listing.query(dataset="notes")
    assert paths(page) == ["about keys.md", "Bread.md", "guides/keys.md", "zoo.md"]
    assert (page.total, page.query, page.entries[0].score) == (4, None, None)


@pytest.mark.parametrize("query", [None, "keys bread animals"])
@table("sort, expected", list)
def test_the_order_asked_for_is_the_order_with_a_query_and_without(listing, sort, expected, query):
    assert paths(listing.query(dataset="notes", query=query, sort=sort)) == expected


def test_a_page_is_a_part_and_the_counts_are_of_all(listing):
    pages = [listing.query(dataset="notes", limit=3, offset=at) for at in (0, 3, 9)]
    assert [len(page.entries) for page in pages] == [3, 1, 0]
    assert {(page.total, page.types["md"]) for page in pages} == {(4, 4)}
    asked = [listing.query(dataset="notes", query="keys", limit=1, offset=at) for at in (0, 1)]
    assert [(paths(page), page.total) for page in asked] == [
        (["guides/keys.md"], 2),
        (["about keys.md"], 2),
    ]


@table("asked, expected", list)
def test_conditions_restrict_the_listing(listing, asked, expected):
    assert listing.query(dataset="notes", **asked).total == expected


@table("written, day, following")
def test_dates_are_read_in_the_forms_people_write_and_shown_as_written(
    library, written, day, following
):
    put(library.database, "notes", "new.md", "x", metadata={"modified": "2022-06-01"})
    put(library.database, "notes", "a.md", "x", metadata={"modified": written})
    put(library.database, "notes", "old.md", "x", metadata={"modified": "2021-12-31"})
    listing = DocumentCatalog(library)
    assert paths(listing.query(dataset="notes", sort="modified")) == ["new.md", "a.md", "old.md"]
    (entry,) = listing.query(dataset="notes", after=day, before=following).entries
    assert (entry.path, entry.modified) == ("a.md", str(written))


def test_an_invalid_date_is_skipped_and_the_next_valid_one_counts(library):
    told = {"modified": "2022-02-30"}
    put(library.database, "notes", "feb.md", "x", metadata=told)
    put(library.database, "notes", "both.md", "x", metadata=told | {"created": "2020"})
    listing = DocumentCatalog(library)
    assert paths(listing.query(dataset="notes", after="0001-01-01")) == ["both.md"]
    assert paths(listing.query(dataset="notes", sort="modified")) == ["both.md", "feb.md"]
    assert {entry.modified for entry in listing.query(dataset="notes").entries} == {"2022-02-30"}


def test_the_documents_own_dates_count_before_those_of_its_file(library, tmp_path):
    folder = tmp_path / "folder"
    write(
        folder,
        own_dot_md="---\nmodified: 2001-01-01\n---\nOne.\n",
        made_dot_md="---\ncreated: 2000-01-01\n---\nTwo.\n",
        none_dot_md="Three.\n",
    )
    for number, name in enumerate(["made.md", "own.md", "none.md"]):
        os.utime(folder / name, (0, 86_400 * (365 + number)))  # in January 1971
    Indexer(library).build(folder, "notes")
    listing = DocumentCatalog(library)
    page = listing.query(dataset="notes", sort="modified")
    assert paths(page) == ["own.md", "made.md", "none.md"]
    assert [entry.modified[:7] for entry in page.entries] == ["2001-01", "1971-01", "1971-01"]
    assert paths(listing.query(dataset="notes", after="1971", before="1972")) == ["none.md"]
    assert paths(listing.query(dataset="notes", after="2000", before="2000-02")) == ["made.md"]


def test_a_size_is_bytes_where_they_are_known_and_characters_elsewhere(library, tmp_path):
    folder = tmp_path / "folder"
    lines = [json.dumps({"_id": "b", "title": "b", "text": "x" * 50})]
    # 40 characters of 3 bytes each: fewer characters than the record, more bytes
    write(folder, all_dot_jsonl="\n".join(lines), wide_dot_md="\u20ac" * 40, thin_dot_md="y" * 45)
    Indexer(library).build(folder, "notes")
    page = DocumentCatalog(library).query(dataset="notes", sort="size")
    assert [(entry.path, entry.bytes) for entry in page.entries] == [
        ("wide.md", 120), ("b", None), ("thin.md", 45),
    ]  # fmt: skip
    assert 45 < page.entries[1].characters < 120


def test_any_text_may_be_asked_and_signs_in_a_name_are_taken_literally(listing):
    for name in ("%", "_", "*", ".*", "[a-z]", "'"):
        assert listing.query(dataset="notes", name=name).total == 0
    odd = ['"', "NEAR(keys, 2)", "keys*", "title:keys", "\0keys", "\ud800", "a" * 10_000]
    for query in (*odd, "x y " * 5000):
        listing.query(dataset="notes", query=query)


def test_a_document_of_that_name_comes_first_and_then_those_whose_names_hold_it(library):
    for path, title in [
        ("a.md", "Report report report on the report pdf"),
        ("old/report.pdf", "Something else"),
        ("lectures/lecture_3.md", "On whales"),
        ("lecture.md", "Lecture lecture lecture, and 3 more"),
        ("whales.md", "All of lecture 3 again"),
    ]:
        put(library.database, "notes", path, "text", title=title)
    listing = DocumentCatalog(library)
    assert paths(listing.query(dataset="notes", query="report.pdf"))[0] == "old/report.pdf"
    page = listing.query(dataset="notes", query="Lecture 3")
    assert paths(page) == ["lectures/lecture_3.md", "whales.md", "lecture.md"]
    first, second, third = (entry.score for entry in page.entries)
    assert first > 2 >= second > 1 >= third > 0


def test_the_extension_of_a_files_name_is_no_word_of_its_own(library):
    for path in ["UPPER.MD", "other.md", "more.md"]:
        put(library.database, "notes", path, "x", title="A title")
    put(library.database, "notes", "formats.md", "x", title="The md format")
    listing = DocumentCatalog(library)
    assert paths(listing.query(dataset="notes", query="UPPER.MD")) == ["UPPER.MD"]
    assert listing.query(dataset="notes", query="upper.format").total == 2  # no file ends so
    assert listing.query(dataset="notes", query="upper md").total == 4


def test_a_path_without_its_extension_names_the_one_file_of_just_that_name(library):
    for path in ["sub/\u00c4.md", "sub/A.md", "A.md"]:
        put(library.database, "notes", path, "x", title="Ten" if path == "A.md" else "")
    first, second = DocumentCatalog(library).query(dataset="notes", query="sub/A").entries[:2]
    assert (first.path, second.path) == ("sub/A.md", "sub/\u00c4.md")
    assert first.score > 2 >= second.score


def test_a_long_query_is_cut_between_words_and_a_note_says_so(listing):
    page = listing.query(dataset="notes", query="keys " * 399 + "abcdef animals")
    assert (page.total, page.notes) == (2, ("query cut from 2,009 to 1,994 characters",))
    page = listing.query(dataset="notes", query="keys." * 6000)
    assert (page.total, page.notes) == (2, ("query cut from 30,000 to 2,000 characters",))
    page = listing.query(dataset="notes", query="about " + "keys." * 6000)  # as without spaces
    assert (page.total, page.notes) == (2, ("query cut from 30,006 to 2,000 characters",))


def test_stop_words_count_only_when_there_are_no_others(library):
    put(library.database, "notes", "a.md", "x", title="The who")
    put(library.database, "notes", "b.md", "x", title="Keys of the house")
    listing = DocumentCatalog(library)
    assert paths(listing.query(dataset="notes", query="the keys")) == ["b.md"]
    assert paths(listing.query(dataset="notes", query="the who")) == ["a.md", "b.md"]


def test_subtitles_are_found_by_their_ending_whatever_they_are_of(library, tmp_path):
    folder = tmp_path / "folder"
    cue = "00:00:01,000 --> 00:00:02,000\nHello there."
    write(folder, talk_dot_srt=f"1\n{cue}\n", notes_dot_md="# About a.srt\n\nNothing.\n")
    Indexer(library).build(folder, "notes")
    listing = DocumentCatalog(library)
    assert listing.query(dataset="notes", name="talk").entries[0].file_type != "srt"
    for told in ("srt", ".SRT", "subtitles", "subtitle files"):
        assert paths(listing.query(dataset="notes", file_type=told)) == ["talk.srt"], told
    with pytest.raises(UnknownValueError, match="video"):
        listing.query(dataset="notes", file_type="vtt")


def test_what_the_callers_filter_hides_is_not_told_by_a_note_either(library):
    put(library.database, "notes", "seen.md", "x", metadata={"level": "open"})
    put(library.database, "notes", "canary.md", "x", metadata={"level": "closed"})
    put(library.database, "other", "canaries.md", "x", metadata={"level": "open"})
    listing = DocumentCatalog(library)
    asked = {"dataset": "notes", "filters": {"level": "open"}}
    for narrowing in [{"name": "canarx"}, {"query": "canary"}]:
        page = listing.query(**asked, **narrowing)
        assert page.total == 0
        told = json.dumps(page.to_dict()["entries"] + list(page.notes))
        assert "canar" not in told
        assert "(2)" not in told


def test_changes_of_another_process_are_seen_at_once(own_listing, tmp_path):
    own_listing.query(dataset="notes", query="keys")
    other = Database.at(tmp_path / "home")
    put(other, "notes", "new keys.md", "x", title="New keys")
    drop(other, "notes", "guides/keys.md")
    other.close()
    assert paths(own_listing.query(dataset="notes")) == [
        "about keys.md", "Bread.md", "new keys.md", "zoo.md",
    ]  # fmt: skip
    assert set(paths(own_listing.query(dataset="notes", query="keys"))) == {
        "about keys.md", "new keys.md",
    }  # fmt: skip


@table("bad")
def test_a_bad_argument_is_an_input_error(listing, bad):
    with pytest.raises(InputError):
        listing.query(**{"dataset": "notes", **bad})
    for unknown, error in (
        ({"dataset": "gone"}, UnknownDatasetError),
        ({"filters": {"no_such_field": 1}}, UnknownFieldError),
        ({"file_type": " "}, FilterError),
        ({"name": ""}, FilterError),
    ):
        with pytest.raises(error):
            listing.query(**{"dataset": "notes", **unknown})


@pytest.fixture(scope="module")
def phrases(store_kind, tmp_path_factory):
    files = {
        "d/many.md": "It is 1,500 euros or 1500.5 on 2026-03-04, not 2.3.1. We can not pay.\n",
        "d/one.md": "It is 500. Or 500 euros. Version 3.1. It was -5 degrees.\n",
    }
    with open_store(files, tmp_path_factory.mktemp("phrases")) as library:
        yield library


@pytest.mark.slow
@table("phrase, found", list)
def test_a_phrase_is_found_whole_and_a_number_as_written(phrases, phrase, found):
    page = DocumentCatalog(phrases).query(containing=[phrase])
    assert [entry.path.split(".")[0] for entry in page.entries] == found


@pytest.mark.slow
def test_documents_that_contain_words_are_all_listed_with_their_places(tmp_path):
    files = {
        "d/a.md": "# Deeds\n\nAn indemnity clause protects.\n\n## More\n\nNo indemnity here.\n",
        "d/b.md": "# Terms\n\nIndemnity clauses are void. The clause on indemnity is not.\n",
        "d/c.md": "# Tea\n\nA clause about tea.\n",
        "d/talk.srt": "1\n00:00:05,000 --> 00:00:08,000\nOur indemnity clause is new.\n",
    }
    with open_store(files, tmp_path) as library:
        catalog = DocumentCatalog(library)
        page = catalog.query(containing=["indemnity clause"])
        assert (page.total, [one.path for one in page.entries]) == (3, ["a.md", "b.md", "talk.srt"])
        assert [one.matching for one in page.entries] == [1, 1, 1]
        for entry in page.entries:
            (place,) = entry.places
            assert "ndemnity clause" in find_document(library.database, place).text
        assert catalog.query(containing=["indemnity", "tea"]).total == 0
        assert catalog.query(containing=["clause"], limit=1, offset=1).total == 4
        assert catalog.query().entries[0].matching is None
        assert catalog.query(containing=["zebra"]).total == 0
        with pytest.raises(InputError, match="no word"):
            catalog.query(containing=["—"])
