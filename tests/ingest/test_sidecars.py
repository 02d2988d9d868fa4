"""Metadata from front matter and from beside a file: what is taken, refused, and kept closed."""

import os

import pytest

from catalog.ingest.discovery import discover
from catalog.ingest.sidecars import Sidecars
from catalog.library.browse import DocumentCatalog
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.chunks import find_by_path
from fakes import WordEncoder, open_library
from growth import assert_linear
from ingest.made_files import BLANK_PDF
from tables import read_cases, table

SECRET = "confidentiality: secret\n"
BOMB = "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\nd: [*c, *c, *c]\n"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "folder"
    made.mkdir()
    return made


@pytest.fixture
def encoder():
    return WordEncoder()


@pytest.fixture
def library(tmp_path, encoder):
    with open_library(tmp_path / "home", encoder) as opened:
        yield opened


def put(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def age(folder):
    """Make every file old enough that its time stamp can be trusted."""
    for path in folder.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))


def build(library, folder):
    return Indexer(library).build(folder, "notes")


def known(library, path):
    """Return a document's title and metadata."""
    with library.database.read() as connection:
        document = find_by_path(connection, "notes", path)
    assert document is not None
    return document.title, document.metadata


def paths(library, **asked):
    return {
        entry.path for entry in DocumentCatalog(library).query(dataset="notes", **asked).entries
    }


def public(library):
    """Return the paths that a reader finds who may not see what is secret."""
    search = SearchServiceV2(library).search
    hits = search("walrus", dataset="notes", filters=["confidentiality!=secret"])
    return {hit.path for hit in hits}


def test_front_matter_says_type_source_dates_tags_and_confidentiality(library, folder):
    front = (
        "---\nFile-Type: Word\nSource Type: memo\nTags: a, b\nConfidentiality: secret\n"
        "date: May 31, 2024\nLast modified: 1.6.2024\n---\nA walrus.\n"
    )
    put(folder, {"a.md": front})
    assert build(library, folder).failed == ()
    (hit,) = SearchServiceV2(library).search("walrus", dataset="notes")
    assert (hit.file_type, hit.source_type, hit.tags) == ("docx", "memo", ("a", "b"))
    assert (hit.created, hit.modified, hit.date) == (
        "2024-05-31",
        "2024-06-01",
        "2024-06-01T00:00:00Z",
    )
    for asked in ("source_type=memo", "file_type=docx", "confidentiality=secret", "tag=b"):
        assert paths(library, filters=asked) == {"a.md"}
    assert paths(library, after="2024-06", before="2024-06-02") == {"a.md"}


NOT_TAKEN = dict(read_cases(__file__)["not_taken"])


def test_what_front_matter_says_and_cannot_be_taken_is_named_until_it_changes(library, folder):
    for number, line in enumerate(NOT_TAKEN):
        put(folder, {f"{number}.md": f"---\n{line}\ntags: kept\n---\nA walrus.\n"})
    age(folder)
    first = build(library, folder)
    assert first.documents == len(NOT_TAKEN), "the documents themselves are indexed"
    again = Indexer(library).update("notes")
    assert again.unchanged == len(NOT_TAKEN)
    for report in (first, again):
        told = {failure.path: failure.reason for failure in report.failed}
        for number, why in enumerate(NOT_TAKEN.values()):
            assert why in told[f"{number}.md"]
            assert told[f"{number}.md"].startswith("metadata not taken: ")
        assert {failure.outcome for failure in report.failed} == {"indexed"}
    for number in range(len(NOT_TAKEN)):
        assert {"created", "file_type"}.isdisjoint(known(library, f"{number}.md")[1])


def test_records_are_read_with_their_own_dates_and_named_up_to_twenty(library, folder):
    lines = [
        f'{{"_id": "{n}", "text": "walrus {n}", "metadata": {{"created": "soon"}}}}'
        for n in range(30)
    ]
    put(folder, {"r.jsonl": "\n".join(lines), "r.jsonl.meta.yaml": "source_type: wiki\n"})
    report = build(library, folder)
    assert (report.documents, len(report.failed)) == (30, 20)
    assert report.failed[-1].reason.endswith("further ones in this file are not listed")
    assert paths(library, filters="source_type=wiki", limit=100) == {str(n) for n in range(30)}
    page = DocumentCatalog(library).query(dataset="notes")
    assert {entry.modified for entry in page.entries} == {None}, "a file's date is not a record's"


def test_a_sidecar_speaks_for_a_file_that_cannot_speak_for_itself(library, folder):
    names = {"a.txt", "a.py", "a.html", "a.csv", "a.ipynb", "a.srt", "Makefile"}
    told = "title: Told\ntags: [x]\nsource_type: note\ncreated: 2020-02-02\n" + SECRET
    for name in names:
        put(folder, {name: "A walrus.\n", f"{name}.meta.yaml": told})
    cells = '{"cells": [{"cell_type": "code", "source": ["walrus"]}], "nbformat": 4}'
    put(folder, {"a.ipynb": cells, "a.srt": "1\n00:00:01,000 --> 00:00:02,000\nA walrus.\n"})
    report = build(library, folder)
    assert (report.documents, report.failed) == (len(names), ())
    for name in names:
        title, metadata = known(library, name)
        assert (title, metadata["tags"], metadata["created"]) == ("Told", ["x"], "2020-02-02")
    assert paths(library, filters=["confidentiality=secret", "source_type=note"]) == names
    assert public(library) == set()


def test_the_nearest_word_on_a_field_counts_and_the_authors_own_first(library, folder):
    front = "---\ntags: own\n---\n# Heading\n\nA walrus.\n"
    put(
        folder,
        {
            ".catalog.yaml": "tags: [far, away]\nowner: far\nlevel: far\nplace: far\ntitle: All\n",
            "sub/.catalog.yaml": "owner: near\nlevel: near\n",
            "sub/a.md": front,
            "sub/a.md.meta.yaml": "tags: beside\nlevel: beside\ntitle: Beside\n",
            "sub/b.txt": "A walrus.\n",
            "c.txt": "A walrus.\n",
        },
    )
    assert build(library, folder).failed == ()
    assert known(library, "sub/a.md") == (
        "Beside",
        {"tags": ["own"], "owner": "near", "level": "beside", "place": "far"},
    )
    assert known(library, "sub/b.txt") == (
        "b",
        {"tags": ["far", "away"], "owner": "near", "level": "near", "place": "far"},
    )
    assert known(library, "c.txt")[1]["owner"] == "far"


def test_what_a_program_wrote_into_a_file_counts_after_what_a_person_wrote_beside_it(
    library, folder
):
    page = '<html><head><meta name="author" content="Tool"><title>T</title></head>walrus</html>'
    put(folder, {"a.html": page, "a.html.meta.yaml": "author: Ann\n"})
    build(library, folder)
    assert known(library, "a.html")[1]["author"] == "Ann"


def test_a_program_s_date_counts_after_the_author_s(library, folder):
    page = '<html><head><meta name="last-modified" content="2025-02-03"></head>A walrus.</html>'
    put(folder, {"a.html": page, "a.html.meta.yaml": "created: May 31, 2024\n", "b.html": page})
    both = "created: 2024-05-01\nmodified: 2024-05-31\n"
    put(folder, {"c.html": page, "c.html.meta.yaml": both})
    build(library, folder)

    def dated(after, before):
        page = DocumentCatalog(library).query(dataset="notes", after=after, before=before)
        return {entry.path for entry in page.entries}

    assert dated("2024-05-31", "2024-06-01") == {"a.html", "c.html"}
    assert dated("2025-02-03", "2025-02-04") == {"b.html"}
    assert known(library, "a.html")[1]["modified"].startswith("2025-02-03")


@table("original, text, body")
def test_the_sidecar_of_a_picture_or_recording_speaks_for_the_texts_made_of_it(
    library, folder, original, text, body
):
    held = BLANK_PDF if original.endswith("pdf") else "\0"
    for name, content in ((original, held), (f"{original}.meta.yaml", SECRET), (text, body)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    age(folder)
    build(library, folder)
    assert paths(library), "the text is indexed"
    assert paths(library, filters="confidentiality=secret") == paths(library)
    (folder / f"{original}.meta.yaml").write_text("confidentiality: public\n")
    Indexer(library).update("notes")
    assert public(library) == {text}, "its change reaches them, too"


def test_notes_next_to_a_recording_are_not_its_transcript(library, folder):
    put(folder, {"talk.pdf.meta.yaml": SECRET, "talk.pdf": "\0", "talk.txt": "A walrus.\n"})
    put(folder, {"talk.mp4.meta.yaml": SECRET, "talk.mp4": "\0"})
    build(library, folder)
    assert public(library) == {"talk.txt"}


def test_metadata_files_are_no_documents_whatever_patterns_say(library, folder):
    put(folder, {"a.txt": "A walrus.\n", "a.txt.meta.yaml": SECRET, ".catalog.yaml": "tags: x\n"})
    put(
        folder,
        {"plain.yaml": "walrus: 1\n", "model.meta.yaml": "walrus: 1\n", ".gitignore": "*.yaml\n"},
    )
    Indexer(library).build(folder, "notes", include=("*.txt",), exclude=("*.meta.yaml",))
    assert paths(library) == {"a.txt"}
    assert known(library, "a.txt")[1] == {"confidentiality": "secret", "tags": ["x"]}
    (folder / ".gitignore").unlink()
    Indexer(library).build(folder, "notes", include=(), exclude=())
    assert paths(library) == {"a.txt", "plain.yaml"}, "one that speaks of no file is none, either"


def test_what_names_and_content_tell_no_sidecar_changes(library, folder):
    put(folder, {"a.txt": "A walrus.\n", "a.txt.meta.yaml": "media: b.mp4\npath: b\ntags: x\n"})
    (failure,) = build(library, folder).failed
    assert "media is set only from names and content" in failure.reason
    assert known(library, "a.txt")[1] == {"path": "b", "tags": ["x"]}
    assert paths(library, filters="path=a.txt") == {"a.txt"}


def test_a_sidecar_of_no_file_is_named_and_not_indexed(library, folder):
    put(folder, {"a.txt": "A walrus.\n", "gone.pdf.meta.yaml": "tags: x\n"})
    report = build(library, folder)
    assert [failure.path for failure in report.failed] == ["gone.pdf.meta.yaml"]
    assert "which is not there" in report.failed[0].reason
    assert paths(library) == {"a.txt"}


@pytest.mark.slow
def test_each_change_of_a_metadata_file_reaches_its_document_and_embeds_nothing(
    library, folder, encoder
):
    put(folder, {"sub/a.txt": "A walrus.\n", "sub/b.txt": "A seal.\n", "c.txt": "A whale.\n"})
    age(folder)
    build(library, folder)
    texts = len(encoder.texts)

    def update(tags):
        report = Indexer(library).update("notes")
        assert report.embedded == 0
        told = {path: known(library, path)[1].get("tags") for path in ("sub/a.txt", "c.txt")}
        assert told == tags
        return report.updated

    sidecar, near = folder / "sub/a.txt.meta.yaml", folder / "sub/.catalog.yaml"
    sidecar.write_text("tags: one\n")
    assert update({"sub/a.txt": ["one"], "c.txt": None}) == 1
    stamp = sidecar.stat().st_mtime_ns
    sidecar.write_text("tags: two\n")
    os.utime(sidecar, ns=(stamp, stamp))  # told by its content, not by its time
    assert update({"sub/a.txt": ["two"], "c.txt": None}) == 1
    near.write_text("tags: near\nowner: Ann\n")
    assert update({"sub/a.txt": ["two"], "c.txt": None}) == 2, "both get an owner"
    sidecar.unlink()
    assert update({"sub/a.txt": ["near"], "c.txt": None}) == 1
    (folder / ".catalog.yaml").write_text("tags: far\n")
    assert update({"sub/a.txt": ["near"], "c.txt": ["far"]}) == 1
    near.unlink()
    assert update({"sub/a.txt": ["far"], "c.txt": ["far"]}) == 2
    (folder / ".catalog.yaml").unlink()
    assert update({"sub/a.txt": None, "c.txt": None}) == 3
    assert update({"sub/a.txt": None, "c.txt": None}) == 0
    assert len(encoder.texts) == texts


def test_an_update_with_nothing_changed_reads_no_document(library, folder, monkeypatch):
    put(
        folder,
        {"a.txt": "A walrus.\n", "a.txt.meta.yaml": "tags: x\n", ".catalog.yaml": "owner: y\n"},
    )
    os.utime(folder / "a.txt", (1_600_000_000, 1_600_000_000))
    build(library, folder)
    monkeypatch.setattr("catalog.ingest.reading.read_file", None)
    monkeypatch.setattr("catalog.ingest.sidecars.parse_yaml", None)
    assert Indexer(library).update("notes").unchanged == 1


BROKEN = {
    "not YAML": b"confidentiality: [secret\n",
    "a list": b"- secret\n",
    "a text": b"secret\n",
    "a bomb": BOMB.encode(),
    "an object": b"x: !!python/object/apply:os.system ['true']\n",
    "deep": b"x: " + b"[" * 5000,
    "10 MB": b"x: y\n" * 2_000_000,
    "not UTF-8": b"confidentiality: secret\xff\n",
    "NUL": b"confidentiality: secret\0\n",
    "twice": b"confidentiality: secret\nConfidentiality: public\n",
    "twice, once with a blank": b'confidentiality: secret\n"confidentiality ": public\n',
}
UNREADABLE_LEVELS = dict(read_cases(__file__)["unreadable_levels"])


def each_in_a_folder(folder, contents):
    """Write each as a sidecar and as a file of a folder, for an ``a.txt`` of its own."""
    sidecars = [folder / f"{n}/a.txt.meta.yaml" for n in range(len(contents))]
    sidecars += [folder / f"{n}-/.catalog.yaml" for n in range(len(contents))]
    for path, content in zip(sidecars, [*contents, *contents], strict=True):
        put(path.parent, {"a.txt": f"A walrus of {path.parent.name}.\n"})
        path.write_bytes(content)
    return sidecars, {f"{path.parent.name}/a.txt" for path in sidecars}


@pytest.mark.slow
def test_a_broken_metadata_file_makes_no_document_visible(library, folder):
    sidecars, documents = each_in_a_folder(folder, BROKEN.values())
    report = build(library, folder)
    assert {failure.path for failure in report.failed} == documents
    for failure in report.failed:
        assert ".catalog.yaml" in failure.reason or "a.txt.meta.yaml" in failure.reason
    assert paths(library, limit=100) == set(), "new documents are not indexed"
    broken = [path.read_bytes() for path in sidecars]
    for path in sidecars:
        path.write_text(SECRET)
    assert Indexer(library).update("notes").added == len(sidecars)
    assert public(library) == set()
    for path, content in zip(sidecars, broken, strict=True):
        put(path.parent, {"a.txt": "A walrus in town.\n"})
        path.write_bytes(content)
    report = Indexer(library).update("notes")
    assert {failure.path for failure in report.failed} == documents
    for path in documents:
        assert known(library, path)[1] == {"confidentiality": "secret"}, "it stays as it was"
    assert public(library) == set()


def test_a_level_that_cannot_be_read_in_a_metadata_file_is_unreadable(library, folder):
    _, documents = each_in_a_folder(
        folder, [level.encode() for level in UNREADABLE_LEVELS.values()]
    )
    report = build(library, folder)
    assert {(one.path, one.outcome) for one in report.failed} == {
        (it, "indexed") for it in documents
    }
    for failure in report.failed:
        assert "confidentiality in its metadata file cannot be read" in failure.reason
    assert paths(library, filters="confidentiality=unreadable", limit=100) == documents


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_a_sidecar_that_is_no_file_opens_no_document(library, folder, tmp_path, kind):
    sidecar = folder / "a.txt.meta.yaml"
    put(folder, {"a.txt": "A walrus.\n", "a.txt.meta.yaml": SECRET})
    build(library, folder)
    sidecar.unlink()
    if kind == "pipe":
        os.mkfifo(sidecar)
    elif kind == "folder":
        sidecar.mkdir()
    else:
        target = tmp_path / "elsewhere.yaml"
        if kind == "link":
            target.write_text("confidentiality: public\n")
        sidecar.symlink_to(target)
    report = Indexer(library).update("notes")
    assert [failure.path for failure in report.failed] == ["a.txt"]
    assert public(library) == set()


LOST_LEVELS = read_cases(__file__)["lost_levels"]


def test_broken_front_matter_that_names_a_confidentiality_opens_no_document(library, folder):
    closed = {f"{number}.md": f"{front}A walrus.\n" for number, front in enumerate(LOST_LEVELS)}
    put(folder, {**closed, "b.txt": "A walrus.\n"})
    told = {failure.path: failure.reason for failure in build(library, folder).failed}
    assert all("confidentiality cannot be read" in told[path] for path in closed)
    assert paths(library, filters="confidentiality=unreadable") == set(closed)


MISSPELT = read_cases(__file__)["misspelt"]
COPIES = read_cases(__file__)["copies"]


def beside(folder, names):
    """Write a file with each of these names next to an ``a.txt``; return which are theirs."""
    for number, name in enumerate(names):
        put(folder, {f"{number}/a.txt": f"A walrus {number}.\n", f"{number}/{name}": SECRET})
    put(folder, {"b.txt": "A walrus.\n"})
    return {f"{number}/a.txt" for number in range(len(names))}


def state_rightly(folder, names):
    for number, name in enumerate(names):
        right = ".catalog.yaml" if name.startswith(".") else "a.txt.meta.yaml"
        put(folder, {f"{number}/{right}": "confidentiality: public\n"})


@pytest.mark.slow
def test_a_copy_of_a_metadata_file_closes_its_documents_unless_the_file_is_there(library, folder):
    closed = beside(folder, COPIES)
    build(library, folder)
    assert paths(library) == {*closed, "b.txt"}
    assert paths(library, filters="confidentiality=unreadable") == closed
    state_rightly(folder, COPIES)
    Indexer(library).update("notes")
    assert paths(library, filters="confidentiality=public") == closed


@pytest.mark.slow
def test_a_metadata_file_with_another_ending_is_named_and_makes_its_documents_unreadable(
    library, folder
):
    closed = beside(folder, MISSPELT)
    told = {failure.path: failure.reason for failure in build(library, folder).failed}
    misspelt = {f"{number}/{name}" for number, name in enumerate(MISSPELT)}
    assert set(told) == {*misspelt, *closed}
    for path in misspelt:
        assert told[path].startswith("not read, so documents that begin with its name")
    assert paths(library, filters="confidentiality=unreadable") == closed
    state_rightly(folder, MISSPELT)
    Indexer(library).update("notes")
    assert paths(library, filters="confidentiality=unreadable") == closed, "of two, neither"
    for path in misspelt:
        (folder / path).unlink()
    assert Indexer(library).update("notes").failed == ()
    assert paths(library, filters="confidentiality=public") == closed


def test_a_metadata_file_does_not_widen_what_the_document_itself_says(library, folder):
    put(folder, {"a.md": f"---\n{SECRET}---\nA walrus.\n"})
    put(folder, dict.fromkeys(("a.md.meta.yaml", ".catalog.yaml"), "confidentiality: public\n"))
    build(library, folder)
    assert known(library, "a.md")[1] == {"confidentiality": "secret"}


def test_the_cost_of_sidecars_grows_with_their_number(library, folder):
    """Texts next to originals with sidecars, too: each may be made from any of them."""

    def fingerprint(count):
        for number in range(count):
            put(
                folder,
                {f"{count}/{number}.txt": "A walrus.", f"{count}/{number}.pdf.meta.yaml": "x: 1"},
            )
        listing = discover(folder / str(count))
        sidecars = Sidecars(listing.beside, listing.top)
        assert len({sidecars.fingerprint(file.path) for file in listing.files}) == 1

    assert_linear(fingerprint, 400)


@pytest.mark.parametrize("name", ["a.meta.json", "talk.mp4.meta.json", "talk.meta.yml"])
def test_a_misnamed_metadata_file_closes_what_begins_with_its_name_up_to_the_dot(
    library, folder, name
):
    cues = "1\n00:00:01,000 --> 00:00:02,000\nA walrus.\n"
    said = "---\nsource_file: talk.mp4\n---\n[00:01] A walrus.\n"
    begin = name.partition(".")[0]
    put(folder, {"b.txt": "A walrus.\n", "talk.en.srt": cues, "said.md": said, name: SECRET})
    put(folder, {f".converted/{begin}.pdf.md": "A walrus.\n", "sub/b.txt": "A walrus.\n"})
    put(folder, {f"{begin}_frames/frame_01m12s.md": "# Visual Frame at 01:12\n\nA walrus.\n"})
    build(library, folder)
    closed = paths(library, filters="confidentiality=unreadable")
    search = SearchServiceV2(library).search
    hits = search("walrus", dataset="notes", filters=["confidentiality!=unreadable"])
    others = {"b.txt", "sub/b.txt"} | ({"said.md", "talk.en.srt"} if begin == "a" else set())
    assert len(closed) == 2
    assert {hit.path for hit in hits} == others
    (folder / name).unlink()
    Indexer(library).update("notes")
    assert paths(library, filters="confidentiality=unreadable") == set()


def test_one_file_that_is_indexed_by_itself_has_its_sidecar(library, folder):
    put(folder, {"a.txt": "A walrus.\n", "a.txt.meta.yaml": SECRET, ".catalog.yaml": "tags: x\n"})
    put(folder, {"b.txt.meta.yaml": "tags: y\n"})
    assert Indexer(library).build(folder / "a.txt", "notes").failed == ()
    assert known(library, "a.txt")[1] == {"confidentiality": "secret", "tags": ["x"]}
    put(folder, {"a.txt.meta.yml": "tags: z\n"})
    assert len(Indexer(library).update("notes").failed) == 2
    assert known(library, "a.txt")[1] == {"confidentiality": "unreadable", "tags": ["x"]}


def test_what_is_said_of_a_file_is_said_of_a_link_to_it(library, folder):
    put(folder, {"a.txt": "The walrus.\n", "a.txt.meta.yaml": SECRET})
    put(folder, {"closed/b.txt": "Another walrus.\n", "closed/.catalog.yaml": SECRET})
    (folder / "alias.txt").symlink_to("a.txt")
    (folder / "open").mkdir()
    (folder / "open" / "b.txt").symlink_to("../closed/b.txt")
    build(library, folder)
    put(folder, {"c.txt": "An open walrus."})
    Indexer(library).update("notes")
    assert paths(library) >= {"alias.txt", "open/b.txt"}
    assert public(library) == {"c.txt"}
