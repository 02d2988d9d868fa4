"""The verbs as functions: the whole main job in Python, as safe as on the command line."""

import json

import pytest
from filelock import FileLock

from catalog import search_v2
from catalog.core import errors
from fakes import WordEncoder
from small_documents import NOTES, write_notes

LABELS = {"keys.md": "how often are keys rotated", "bread.txt": "how hot is bread baked"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of three notes, and settings of a home without a store."""
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("catalog.embedding.get_encoder", lambda *_: WordEncoder())
    yield write_notes(tmp_path / "notes")
    search_v2.close()


@pytest.fixture
def questions(tmp_path):
    file = tmp_path / "questions.jsonl"
    about = ((path, query, [{"path": path, "grade": 3}]) for path, query in LABELS.items())
    names = ("id", "query", "expected")
    file.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in about))
    return file


@pytest.mark.slow
def test_a_folder_is_indexed_searched_asked_read_listed_and_removed(folder):
    report = search_v2.index(folder)
    assert (report.documents, report.added, report.failed) == (3, 3, ())
    assert search_v2.search("bake bread", dataset="notes")[0].path == "bread.txt"
    assert "[1]" in search_v2.ask("when do backups run", dataset="notes").text
    line = "Rotate the API keys every ninety days with the keys command."
    assert search_v2.get("keys.md:8-8").text == line
    assert search_v2.browse(tags=["ops"]).entries[0].path == "keys.md"
    assert search_v2.remove("notes", "bread.txt").documents == 1
    assert search_v2.browse().total == search_v2.remove("notes").documents == 2
    with pytest.raises(errors.UnknownDatasetError):
        search_v2.remove("notes")
    assert (folder / "bread.txt").exists()


def test_indexing_again_reads_what_changed_and_a_search_of_the_process_sees_it(folder):
    search_v2.index(str(folder), dataset="mine", exclude="*.txt")
    assert search_v2.search("bread", dataset="mine", mode="lexical").results == ()
    (folder / "new.md").write_text("A walrus bakes bread.")
    (folder / "guides/backup.md").unlink()
    with pytest.raises(errors.InputError, match="no argument 'exclud'; did you mean exclude"):
        search_v2.index(folder, exclud=["*"])
    report = search_v2.index(dataset="mine")
    assert (report.added, report.removed, report.unchanged) == (1, 1, 1)
    found = search_v2.search("bread", dataset="mine", mode="lexical")
    assert [one.path for one in found] == ["new.md"]
    assert search_v2.index(folder, dataset="mine", exclude=["guides/*"]).documents == 3


@pytest.mark.parametrize("before", ["{0}/", "file://{0}/", "./", "notes/", "mine/", ".\\"])
def test_a_document_has_the_names_that_shells_editors_and_agents_give_it(folder, before):
    search_v2.index(folder, dataset="mine")
    named = before.format(folder) + "guides/backup.md"
    (found,) = search_v2.search("backups", dataset="mine", docs=[named], mode="lexical")
    assert (found.path, search_v2.get(f"{named}#L1").part.first) == ("guides/backup.md", 1)
    with pytest.raises(errors.DocumentNotFoundError, match=r"mean mine:guides/backup\.md"):
        search_v2.get(named.replace("backup", "backups"))
    assert search_v2.remove("mine", named).documents == 1


def test_a_second_run_on_a_dataset_waits_for_the_first_and_then_refuses(folder, monkeypatch):
    monkeypatch.setenv("IDX_RAG_V2__INGEST__LOCK_SECONDS", "0.05")
    search_v2.index(folder)
    with FileLock(folder.parent / "home" / "locks" / "notes.lock"):
        for run in (lambda: search_v2.index(folder), lambda: search_v2.remove("notes")):
            with pytest.raises(errors.StoreBusyError, match="another process is indexing 'notes'"):
                run()
    assert search_v2.index(folder).unchanged == 3


def test_progress_is_printed_only_when_asked(folder, capsys):
    search_v2.index(folder)
    assert capsys.readouterr() == ("", "")
    search_v2.index(folder, reread=True, show_progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "indexing words" in err


def test_where_a_role_is_in_force_nothing_is_indexed_compared_or_removed(folder, monkeypatch):
    search_v2.index(folder)
    monkeypatch.setenv("IDX_ANSWERS__ROLES", "guest: public")
    monkeypatch.setenv("IDX_ANSWERS__ROLE", "guest")
    for verb in (search_v2.index, search_v2.remove, search_v2.compare):
        with pytest.raises(errors.InputError, match=f"a role is in force .* {verb.__name__} does"):
            verb(str(folder / "keys.md"))
    with pytest.raises(errors.UnknownDatasetError):
        search_v2.get("keys.md")


def test_a_call_that_cannot_work_says_why(folder):
    for call in (lambda: search_v2.index(dataset="notes"), lambda: search_v2.remove("notes")):
        with pytest.raises(errors.NoStoreError):
            call()
    with pytest.raises(errors.InputError, match="gives no name"):
        search_v2.index("/")
    search_v2.index(folder)
    with pytest.raises(errors.DocumentNotFoundError, match=r"keys\.md"):
        search_v2.get("key.md")
    with pytest.raises(errors.InputError, match="did you mean limit"):
        search_v2.browse(limt=3)


def test_a_document_is_cut_as_on_the_command_line(folder, command):
    search_v2.index(folder)
    cut = search_v2.get("keys.md", max_bytes=60)
    assert cut.to_dict() == json.loads(command("get", "keys.md", "--max-bytes", "60", "--json")[1])
    assert cut.notes[0].startswith("cut after line")
    assert search_v2.get("notes:keys.md").text == NOTES["notes/keys.md"]


@pytest.mark.slow
def test_a_function_and_a_retriever_are_compared_as_they_are(folder, questions):
    def first_letters(query, top_k):
        return ["bread.txt", "guides/backup.md", "keys.md"][:top_k]

    search_v2.index(folder)
    own = search_v2.CatalogRetriever("notes", mode="lexical")
    asked = {"baseline": first_letters, "candidate": own, "repeats": 0}
    compared = search_v2.compare(questions, dataset="notes", **asked)
    assert compared.verdict.startswith(
        "Too few queries to tell CatalogRetriever from first_letters"
    )
    assert compared.candidate_scores.means["nDCG@10"] == 1.0
