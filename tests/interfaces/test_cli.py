"""The command line as a person or a script uses it, with the packaged model."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import catalog_search
from catalog import search_v2
from catalog.core.errors import NoStoreError
from catalog.interfaces.cli import main
from catalog.models import packaged
from catalog.search import search as search_v1
from fakes import WordEncoder, open_library
from small_documents import write_notes
from tables import table

pytestmark = pytest.mark.skipif(
    packaged.locate(packaged.BGE_SMALL) is None,
    reason="the packaged bge-small model is not installed (pip install '.[offline]')",
)


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory):
    root = tmp_path_factory.mktemp("shared")
    write_notes(root / "notes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(root / "home"))
        patch.setattr(
            sys, "argv", ["catalog", "index", "build", str(root / "notes"), "-d", "notes"]
        )
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return root


@pytest.fixture
def shared(shared_home, monkeypatch):
    """The folder of a store that no test changes."""
    monkeypatch.setenv("IDX_HOME", str(shared_home / "home"))
    return shared_home / "notes"


@pytest.fixture
def built(catalog, notes):
    """The folder of a store of the test's own."""
    code, _, err = catalog("index", "build", notes, "--dataset", "notes")
    assert code == 0, err
    return notes


def test_a_build_reports_what_the_contract_names(catalog, notes):
    (notes / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    code, out, _ = catalog("index", "build", notes, "--dataset", "notes", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["documents"] == 3
    assert {"documents", "chunks", "embedded", "reused", "failed", "seconds"} <= set(report)
    assert [(one["path"], "binary" in one["reason"]) for one in report["failed"]] == [
        ("image.png", True)
    ]


def test_search_prints_a_cited_passage_and_how_the_search_went(catalog, shared):
    code, out, err = catalog("search", "rotate api keys", "--top-k", "2", "--explain")
    assert code == 0
    assert "— keys.md:4-" in out.splitlines()[0]
    assert "(adaptive)" in out
    assert "lexical" in err
    assert "vector" in err


@pytest.mark.slow
def test_a_query_that_is_cut_or_excludes_says_so(catalog, shared):
    _, _, err = catalog("search", "keys " * 1000)
    assert "query cut from 4,999 to 1,999 characters" in err
    _, out, err = catalog("search", "keys bread -flour")
    assert "excluding flour" in err
    assert "bread.txt" not in out


@pytest.mark.skipif(os.name == "nt", reason="no file name holds a line break there")
def test_a_near_miss_whose_name_has_a_line_break_is_told_on_one_line(catalog, notes):
    (notes / "odd\nname.md").write_text("# Odd\n\nA name.\n")
    catalog("index", "build", notes, "--dataset", "notes")
    _, _, err = catalog("get", "oddname.md")
    assert err == "catalog: no document 'oddname.md'; did you mean notes:odd name.md?\n"


@pytest.mark.slow
def test_update_stats_status_and_doctor_agree_with_the_folder(catalog, built):
    (built / "new.md").write_text("# New\n\nA page about turnips.\n")
    _, out, _ = catalog("index", "update", "--dataset", "notes", "--json")
    assert json.loads(out)["added"] == 1
    _, out, _ = catalog("index", "stats", "--json")
    stats = json.loads(out)
    assert stats["documents"] == 4
    assert stats["vectors"] == stats["windows"]
    _, out, _ = catalog("status", "--json")
    assert json.loads(out)["datasets"][0] == stats
    code, out, _ = catalog("doctor")
    assert code == 0, out
    assert "FAIL" not in out


def test_a_dataset_is_removed_once_confirmed_and_its_files_stay(catalog, built, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, err = catalog("index", "remove", "notes")
    assert (code, "Remove notes from the store?" in err) == (1, True)
    assert json.loads(catalog("status", "--json")[1])["datasets"][0]["dataset"] == "notes"
    code, out, _ = catalog("index", "remove", "notes", "--yes")
    assert code == 0
    assert out == f"removed 3 documents, 3 passages; the files stay in {built}\n"
    assert len(list(built.iterdir())) == 3
    code, _, err = catalog("index", "remove", "notes", "--yes")
    assert code == 1
    assert "no dataset 'notes'" in err


def test_config_shows_values_and_where_they_come_from(catalog, monkeypatch):
    monkeypatch.setenv("IDX_RAG_V2__RRF_K", "17")
    monkeypatch.setenv("IDX_RAG_V2__QDRANT_API_KEY", "s3cret")
    monkeypatch.setenv("IDX_RAG_V2__QDRANT_URL", "bob:s3cret@host:6333")  # without a scheme
    _, out, _ = catalog("config")
    assert "IDX_RAG_V2__RRF_K = 17  [environment]" in out
    assert "s3cret" not in out
    assert "IDX_SERVE__ROLE_TOKENS = []  [default]" in out
    monkeypatch.setenv("IDX_ANSWERS__ROLES", "employee: public; lead: secrets")
    monkeypatch.setenv("IDX_ANSWERS__ROLE", "employee")
    for form in ([], ["--json"]):  # the other roles are not for this one to know
        assert "secrets" not in catalog("config", *form)[1]


NOT_SEARCHED_WITH = [
    *("llama_index", "nltk", "fastembed", "qdrant_client", "qdrant_edge", "torch", "httpx"),
    *("fastapi", "mcp", "catalog.core.agents", "catalog.core.answers"),
    *("catalog.library.browse", "catalog.library.get", "catalog.retrieval.expansion"),
    *("catalog.retrieval.rerank", "catalog.ingest.readers"),
]


@pytest.mark.slow
@table("mode, besides", inner=list)
def test_a_cold_search_imports_only_its_own_parts(shared, mode, besides):
    script = (
        "import sys\n"
        f"sys.argv = ['catalog', 'search', 'rotate keys', '--mode', '{mode}']\n"
        "from catalog.interfaces.cli import main\n"
        "try:\n    main()\nfinally:\n"
        f"    print([m for m in {NOT_SEARCHED_WITH + besides!r} if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "keys.md" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_build_of_an_empty_folder_says_so_and_ends_with_code_1(catalog, tmp_path):
    (tmp_path / "empty").mkdir()
    code, out, _ = catalog("index", "build", tmp_path / "empty", "--dataset", "empty")
    assert code == 1
    assert "has no file to index" in out


def test_an_empty_pattern_drops_those_of_the_build_before(catalog, notes):
    build = ["index", "build", notes, "--dataset", "notes", "--json"]
    assert json.loads(catalog(*build, "--exclude", "guides/")[1])["documents"] == 2
    assert json.loads(catalog(*build)[1])["documents"] == 2
    assert json.loads(catalog(*build, "--exclude", "")[1])["documents"] == 3


@table("folder, name")
def test_a_dataset_is_named_after_its_folder(catalog, tmp_path, folder, name):
    file = tmp_path / folder if folder.endswith(".md") else tmp_path / folder / "keys.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text("Rotate the keys.\n", encoding="utf-8")
    code, out, _ = catalog("index", "build", tmp_path / folder)
    assert (code, out.splitlines()[0]) == (0, f"dataset: {name}")
    found = json.loads(catalog("search", "keys", "--json")[1])["results"]
    assert [one["dataset"] for one in found] == [name]


@table("words, code, told")
def test_a_call_that_cannot_work_ends_with_one_or_two_and_says_why(
    catalog, shared, tmp_path, monkeypatch, words, code, told
):
    monkeypatch.chdir(tmp_path)
    Path("broken").mkdir()
    Path("broken/catalog.db").write_bytes(b"this is not a database at all, not even nearly" * 50)
    for name, text in (
        ("text.db", "Notes."),
        ("record.jsonl", '{"id": 1}'),
        ("kind.jsonl", '{"kind": "x"}'),
    ):
        Path(name).write_text(f"{text}\n")
    ended, out, err = catalog(*shlex.split(words))
    assert (ended, out) == (code, "")
    assert told in " ".join(err.split())
    assert code == 2 or err.splitlines()[-1].startswith("catalog: ")


@table("words")
def test_a_command_that_reads_makes_no_store(command, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    golden = {"id": "q", "query": "keys", "expected": [{"path": "keys.md"}]}
    Path("golden.jsonl").write_text(json.dumps(golden))
    for place in (tmp_path / "mistyped", tmp_path / "mistyped/deep"):
        code, out, err = command(*words.split(), "--home", place)
        assert (code, out) == (1, "")
        assert str(place) in err
    assert "no store" in err
    assert [one.name for one in tmp_path.iterdir()] == ["golden.jsonl"]


@table("words")
def test_a_process_bound_to_a_role_runs_no_command_that_does_not_heed_it(
    catalog, shared, tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IDX_ANSWERS__ROLES", "employee: unlabelled")
    monkeypatch.setenv("IDX_ANSWERS__ROLE", "employee")
    code, out, err = catalog(*words.split())
    assert (code, out) == (1, "")
    assert f"'catalog {words.split()[0]}'" in err
    assert "unset IDX_ANSWERS__ROLE" in err
    assert list(tmp_path.iterdir()) == []
    assert catalog("status")[0] == catalog("browse")[0] == 0


@table("words, told")
def test_a_restore_refuses_what_is_no_copy_and_leaves_no_folder_behind(
    catalog, tmp_path, monkeypatch, words, told
):
    monkeypatch.chdir(tmp_path)
    with open_library(tmp_path / "home"):
        pass
    Path("home/catalog.db.before-restore").touch()  # of an earlier one: it is not asked about
    Path("text.db").write_text("no store at all")
    Path("empty.db").touch()
    code, _, err = catalog(*words.split())
    assert (code != 0, told in err, "--force" in err) == (True, True, False), err
    assert not Path("new").exists()
    assert catalog("status")[0] == 0


@table("narrowed, paths")
def test_a_search_as_json_is_one_object_narrowed_as_told(catalog, shared, narrowed, paths):
    found = json.loads(catalog("search", "keys backups", *narrowed, "--json")[1])
    assert {one["path"] for one in found["results"]} - {"bread.txt"} == set(paths)


def test_get_prints_the_document_or_a_range_of_it(catalog, shared):
    whole = (shared / "keys.md").read_text()
    code, out, _ = catalog("get", "notes:keys.md")
    assert (code, out.rstrip("\n")) == (0, whole.rstrip("\n"))
    assert catalog("get", "keys.md:6-7")[1].splitlines() == whole.splitlines()[5:7]
    docid = json.loads(catalog("search", "keys", "--json")[1])["results"][0]["docid"]
    assert json.loads(catalog("get", f"#{docid}", "--json")[1])["path"] == "keys.md"


def test_browse_shows_what_there_is_and_json_has_it_all(catalog, shared):
    size = (shared / "keys.md").stat().st_size
    code, out, err = catalog("browse", "--type", "md")
    listed = [line.split()[1] for line in out.splitlines() if line.startswith("[")]
    assert (code, listed) == (0, ["guides/backup.md", "keys.md"])
    assert err.startswith("1-2 of 2 documents (2 md) in ")
    assert f"  {size:,} bytes in 1 passage" in out
    assert catalog("browse", "--name", "KEYS")[2].startswith("1-1 of 1 document (1 md) in ")
    (entry,) = json.loads(catalog("browse", "--name", "KEYS", "--json")[1])["entries"]
    assert (entry["path"], entry["file_type"], entry["bytes"]) == ("keys.md", "md", size)
    assert catalog("browse", "--name", "qqqq")[:2] == (0, "No document in notes matches.\n")
    code, out, err = catalog("browse", "--type", "md", "--offset", "98")
    assert (code, out) == (0, "There is no document 99: the listing has 2 documents.\n")
    assert err.startswith("0 of 2 documents (2 md) in ")


@pytest.mark.slow
def test_a_dataset_keeps_its_preset_and_a_dry_run_tells_what_another_would_do(catalog, notes):
    catalog("index", "build", notes, "-d", "notes", "--preset", "vault")
    made = "made with preset vault (chunk_overlap 60, chunk_min_size 300)"
    assert made in catalog("status")[1]
    projects = ("index", "update", "--preset", "projects")
    assert "chunk_min_size 700 instead of 300" in catalog(*projects, "--dry-run")[1]
    code, out, _ = catalog(*projects, "--dry-run", "--apply-settings", "--json")
    preview = json.loads(out)
    assert (code, len(preview["changed"]), preview["unchanged"]) == (0, 3, 0)
    assert json.loads(catalog(*projects, "--apply-settings", "--json")[1])["updated"] == 3
    stats = json.loads(catalog("index", "stats", "--json")[1])
    assert (stats["preset"], stats["settings"]["chunk_min_size"]) == ("projects", 700)


def test_one_document_is_removed_once_confirmed_and_the_folder_that_has_it_is_named(
    catalog, built, monkeypatch
):
    named = ("index", "remove", "notes", "--doc", "bread.txt")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, err = catalog(*named)
    assert (code, "Remove bread.txt of notes from the store?" in err) == (1, True)
    code, out, _ = catalog(*named, "--yes", "--json")
    removed = json.loads(out)
    assert (code, removed["documents"], removed["root"]) == (0, 1, str(built))
    assert "the next update indexes it again" in removed["notes"][0]
    code, _, err = catalog(*named, "--yes")
    assert (code, "no document 'bread.txt'" in err) == (1, True)


@pytest.mark.parametrize("again", [("build",), ("build", "-d", "notes"), ("update", "--reread")])
def test_a_dataset_that_is_read_again_has_the_same_ids(catalog, built, again):
    def ids():
        found = json.loads(catalog("search", "keys backups", "--json")[1])["results"]
        return [one["chunk_id"] for one in found]

    before = ids()
    code, out, _ = catalog("index", *again, "--json")
    report = json.loads(out)
    assert (code, report["updated"], report["unchanged"]) == (0, 3, 0)
    assert ids() == before


def test_several_datasets_are_built_updated_and_counted_in_one_call(catalog, notes, tmp_path):
    (other := tmp_path / "other").mkdir()
    (other / "a.md").write_text("# Granite\n")
    code, out, _ = catalog("index", "build", notes, other)
    names = [line for line in out.splitlines() if line.endswith(":")]
    assert (code, names) == (0, [f"{notes.name}:", "other:"])
    both = ("-d", notes.name, "-d", "other", "-d", "other")
    (other / "b.md").write_text("# Copper\n")
    (notes / "c.md").write_text("# Marble\n")
    added = json.loads(catalog("index", "update", *both, "--json")[1]).items()
    assert {name: one["added"] for name, one in added} == {notes.name: 1, "other": 1}
    assert json.loads(catalog("index", "stats", *both, "--json")[1])["other"]["documents"] == 2
    notes.rename(tmp_path / "away")
    (other / "d.md").write_text("# Slate\n")
    code, out, err = catalog("index", "update", *both)
    assert (code, "1 added" in out, f"catalog: {notes.name}: " in err) == (1, True, True)


def test_doctor_fails_with_the_fix_when_vectors_are_missing(catalog, built, tmp_path):
    with open_library(tmp_path / "home") as library, library.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM embeddings WHERE side = 'document'")
    code, out, _ = catalog("doctor")
    assert (code, "catalog index update --dataset notes" in out) == (1, True)


def test_the_status_of_an_empty_store_says_what_to_do(catalog, tmp_path):
    with open_library(tmp_path / "empty"):
        pass
    code, out, err = catalog("--home", tmp_path / "empty", "status")
    assert (code, err) == (0, "")
    told = "no dataset yet: create one with 'catalog index build FOLDER'"
    assert out.splitlines()[-1] == told
    assert "None" not in out
    assert catalog("status", "--home", tmp_path / "empty") == (0, out, "")


@pytest.mark.slow
def test_help_and_import_load_no_heavy_library():
    check = (
        "import sys, catalog, catalog.interfaces.cli.commands as a\n"
        "from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(a.app, ['--help']).exit_code == 0\n"
        f"print([m for m in {[*NOT_SEARCHED_WITH, 'onnxruntime', 'sqlalchemy', 'numpy']!r}"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_an_interrupted_build_says_how_to_continue_and_the_next_run_does(
    catalog, notes, monkeypatch
):
    for number in range(15):
        text = f"# {number}\n\n" + f"Sentence {number} here. " * 100
        (notes / f"more{number}.md").write_text(text)

    class Encoder(WordEncoder):
        def encode(self, texts):
            calls.append(texts)
            if len(calls) == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return super().encode(texts)

    calls = []
    monkeypatch.setattr("catalog.embedding.get_encoder", lambda *_: Encoder())
    monkeypatch.setenv("IDX_RAG_V2__INGEST__GROUP_CHARS", "2500")
    build = ("index", "build", notes, "--dataset", "notes", "--json")
    code, _, err = catalog(*build)
    assert code == 130
    assert "run the same command to continue" in err
    report = json.loads(catalog(*build)[1])
    assert report["documents"] == 18
    assert report["unchanged"] > 0


CTRL_C = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
WHILE_IMPORTED = {  # what a package may make of it
    "as it is": CTRL_C,
    "in a class": f"""
class Field:
    def __set_name__(self, owner, name):
        {CTRL_C}
class Model:
    field = Field()
""",
    "as the cause of an ImportError": f"""
try:
    {CTRL_C}
except BaseException as error:
    raise ImportError("broken") from error
""",
    "while it cleans up": f"""
try:
    {CTRL_C}
finally:
    raise OSError("half done")
""",
    "in a group": f"""
try:
    {CTRL_C}
except BaseException as error:
    raise BaseExceptionGroup("tasks", [error])
""",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "happens"),  # typer is of all commands, sqlalchemy of this one
    [*(("typer", one) for one in WHILE_IMPORTED), ("sqlalchemy", "in a class")],
)
def test_ctrl_c_while_packages_are_imported_ends_with_130(tmp_path, package, happens):
    (tmp_path / f"{package}.py").write_text(WHILE_IMPORTED[happens])
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    run = f"{heeding}import runpy; runpy.run_module('catalog', run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", run, "browse"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "catalog: interrupted\n"


def test_ctrl_c_before_the_command_line_is_imported_ends_with_130(monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(catalog_search, "find_hiding", interrupt)
    with pytest.raises(SystemExit) as ending:
        catalog_search.main()
    assert (ending.value.code, capsys.readouterr().err) == (130, "catalog: interrupted\n")


@pytest.mark.slow
def test_an_error_that_is_no_ctrl_c_stays_what_it_is(tmp_path):
    (tmp_path / "sqlalchemy.py").write_text("raise OSError('broken')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "catalog", "browse"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "broken" in done.stderr


@pytest.mark.parametrize(
    "read",
    [
        lambda: search_v2.search("keys"),
        lambda: search_v2.ask("which keys?"),
        lambda: search_v2.generate("blueprint", topic="keys"),
        lambda: search_v2.CatalogRetriever("notes").retrieve("keys"),
        lambda: search_v2.HybridRetrieverFactoryV2().build(dataset_name="notes").retrieve("keys"),
        lambda: search_v2.QueryEngineBuilderV2().build_query_engine("notes").query("keys"),
        lambda: search_v2.AnswerQueryEngine("notes").query("which keys?"),
        lambda: search_v1("keys", dataset="notes"),
    ],
)
def test_a_function_that_reads_makes_no_store_where_one_was_lost(tmp_path, read):
    (tmp_path / "home/indexes/notes").mkdir(parents=True)
    with pytest.raises(NoStoreError, match=re.escape(str(tmp_path / "home"))):
        read()
    assert [one.name for one in (tmp_path / "home").iterdir()] == ["indexes"]


def test_a_rebuild_of_nothing_says_so(catalog, notes):
    catalog("index", "build", notes, "--dataset", "no name!")  # makes the store
    code, out, _ = catalog("index", "rebuild")
    assert code == 0
    assert "no dataset to rebuild" in out


def test_a_dry_run_says_which_files_are_indexed_in_the_words_of_the_run(catalog, tmp_path):
    folder = tmp_path / "told"
    folder.mkdir()
    (folder / "log.jsonl").write_text('{"level": "info"}\n')
    (folder / "empty.md").write_text("")
    _, out, err = catalog("index", "build", folder, "-d", "told")
    told = "log.jsonl: read as text, not as records"
    assert out.startswith("2 files, 1 left out: 1 document, 1 passage, all embedded; ")
    assert "catalog: not indexed: empty.md: empty\n" in err
    assert f"catalog: indexed: {told}" in err
    os.utime(folder / "empty.md", (1, 1))
    os.utime(folder / "log.jsonl", (1, 1))
    catalog("index", "update", "-d", "told")
    _, out, _ = catalog("index", "update", "-d", "told", "--dry-run")
    assert f"indexed:     {told}" in out
    assert "not indexed: empty.md: empty\n" in out
    assert "1 indexed with remarks, 1 not indexed, 0 unchanged;" in out


def test_one_of_a_thing_is_told_in_the_singular(catalog, notes, tmp_path):
    for file in notes.rglob("*.md"):
        file.unlink()
    assert catalog("index", "build", notes, "--dataset", "notes")[0] == 0
    assert "1 document, 1 passage, " in catalog("export", tmp_path / "out.jsonl")[1]
    catalog("search", "bread")
    assert "removed 1 document, 1 passage;" in catalog("index", "remove", "notes", "--yes")[1]


@pytest.mark.slow
def test_nothing_is_wider_than_the_terminal_but_paths_links_and_commands(
    catalog, shared, tmp_path, monkeypatch
):
    golden = tmp_path / "golden.jsonl"
    asked = {"id": "q1", "query": "how often are keys rotated", "expected": [{"path": "keys.md"}]}
    golden.write_text(json.dumps(asked))
    compare = ("compare", "--golden", golden, "--baseline", "lexical", "--candidate", "vector")
    commands = [
        *(("status",), ("models", "list"), ("ask", "how often are api keys rotated?")),
        *(("ask", "who won the cup of 1974?"), compare, ("browse",), ("browse", "keys")),
        ("doctor",),
    ]
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    for words in commands:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout.isatty", lambda: True)
            patch.setattr("sys.stderr.isatty", lambda: True)
            _, out, err = catalog(*words)
        assert out, err
        for line in (out + err).splitlines():
            told = re.sub(r"\x1b\[[?\d]*[A-Za-z]", "", line).split("\r")[-1]
            is_path = len(told.split()) <= 2 and "/" in told
            is_whole = is_path or told.lstrip().startswith(("catalog ", "pip "))
            assert len(told) <= 60 or is_whole, (words, line)


@pytest.mark.parametrize("query", ["-multi-agent", "--- keys", "---"])
def test_a_query_that_begins_with_dashes_and_is_no_option_is_a_query(catalog, shared, query):
    code, out, err = catalog("search", query, "--mode", "lexical", "--json")
    assert (code, json.loads(out)["query"]) == (0, query), err


def test_an_excluded_word_outside_of_the_quotes_is_no_option_and_the_way_is_told(catalog, shared):
    for words, told in (
        (("keys", "-days"), "-days was read as -d ays"),
        (("-d", "notes", "keys", "--json", "-days"), '-- "… -days"'),
        (("--doc", "guides/*", "-draft", "keys"), '-- "… -draft"'),
        (("-days",), 'after --: -- "… -days"'),
        (("keys", "-coat"), 'put it in quotes: "keys -coat"'),
        (("keys", "-k", "1", "-coat"), 'put it in quotes: "keys -coat"'),
        (("keys", "-notes"), "-n otes"),
    ):
        code, _, err = catalog("search", *words)
        assert (code, told in " ".join(err.split())) == (2, True), err
    assert json.loads(catalog("search", "keys", "-k1", "--json")[1])["results"][1:] == []


def test_a_glob_may_begin_with_the_folder_that_it_is_in(catalog, shared):
    found = json.loads(catalog("search", "keys backups", "--doc", "./guides/*", "--json")[1])
    assert {one["path"] for one in found["results"]} == {"guides/backup.md"}
