"""The command line as a person or a script uses it, with the packaged model."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from catalog import search_v2
from catalog.core.errors import NoStoreError
from catalog.interfaces.cli import main
from catalog.interfaces.cli.output import safe
from catalog.models import packaged
from catalog.search import search as search_v1
from fakes import open_library
from small_documents import write_notes

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


def test_a_query_that_is_cut_or_excludes_says_so(catalog, shared):
    _, _, err = catalog("search", "keys " * 1000)
    assert "query cut from 4,999 to 2,000 characters" in err
    _, out, err = catalog("search", "keys bread -flour")
    assert "excluding flour" in err
    assert "bread.txt" not in out


def test_search_as_json_is_one_object(catalog, shared):
    _, out, _ = catalog("search", "rotate api keys", "-d", "notes", "--json", "--mode", "lexical")
    found = json.loads(out)
    assert found["mode"] == "lexical"
    assert found["results"][0]["path"] == "keys.md"


def test_documents_can_be_named_by_glob_and_passages_by_filter(catalog, shared):
    _, out, _ = catalog("search", "keys backups", "--doc", "guides/*.md", "--json")
    assert {one["path"] for one in json.loads(out)["results"]} == {"guides/backup.md"}
    _, out, _ = catalog("search", "keys backups", "--filter", "tag=ops", "--json")
    assert {one["path"] for one in json.loads(out)["results"]} == {"keys.md"}


def test_a_glob_that_names_nothing_is_an_error_with_near_misses(catalog, shared):
    code, out, err = catalog("search", "keys", "--doc", "keyz.md")
    assert (code, out) == (1, "")
    assert "keys.md" in err


def test_get_prints_the_document_a_range_of_it_or_near_misses(catalog, shared):
    whole = (shared / "keys.md").read_text()
    code, out, _ = catalog("get", "notes:keys.md")
    assert (code, out.rstrip("\n")) == (0, whole.rstrip("\n"))
    _, out, _ = catalog("get", "keys.md:6-7")
    assert out.splitlines() == whole.splitlines()[5:7]
    _, out, _ = catalog("search", "keys", "--json")
    docid = json.loads(out)["results"][0]["docid"]
    _, out, _ = catalog("get", f"#{docid}", "--json")
    assert json.loads(out)["path"] == "keys.md"
    code, _, err = catalog("get", "kyes.md")
    assert code == 1
    assert "did you mean notes:keys.md" in err


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


def test_one_document_is_removed_once_confirmed_and_the_folder_that_has_it_is_named(
    catalog, built, monkeypatch
):
    name = min(file.name for file in built.iterdir())
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, err = catalog("index", "remove", "notes", "--doc", name)
    assert (code, f"Remove {name} of notes from the store?" in err) == (1, True)
    code, out, _ = catalog("index", "remove", "notes", "--doc", name, "--yes", "--json")
    removed = json.loads(out)
    assert (code, removed["documents"], removed["root"]) == (0, 1, str(built))
    assert "the next update indexes it again" in removed["notes"][0]
    code, _, err = catalog("index", "remove", "notes", "--doc", name, "--yes")
    assert (code, f"no document {name!r}" in err) == (1, True)
    assert json.loads(catalog("index", "update", "-d", "notes", "--json")[1])["added"] == 1


def test_a_dataset_keeps_its_preset_and_a_dry_run_tells_what_another_would_do(catalog, notes):
    catalog("index", "build", notes, "-d", "notes", "--preset", "vault")
    _, out, _ = catalog("status")
    assert "made with preset vault (chunk_overlap 60, chunk_min_size 300)" in out
    _, out, _ = catalog("index", "update", "--json")
    report = json.loads(out)
    assert (report["updated"], report["embedded"]) == (0, 0)
    assert "would cut 3 of 3 documents again" in report["notes"][0]
    projects = ("index", "update", "--preset", "projects")
    code, out, _ = catalog(*projects, "--dry-run", "--apply-settings", "--json")
    preview = json.loads(out)
    assert code == 0
    assert (len(preview["changed"]), preview["added"], preview["unchanged"]) == (3, [], 0)
    assert preview["settings"] == {}
    _, out, _ = catalog(*projects, "--dry-run")
    assert "chunk_min_size 700 instead of 300" in out
    _, out, _ = catalog(*projects, "--apply-settings", "--json")
    assert json.loads(out)["updated"] == 3
    _, out, _ = catalog("index", "stats", "--json")
    stats = json.loads(out)
    assert (stats["preset"], stats["settings"]["chunk_min_size"]) == ("projects", 700)


def test_the_command_that_doctor_names_for_damage_is_one(catalog, built):
    code, out, _ = catalog("index", "update", "--dataset", "notes", "--reread", "--json")
    assert (code, json.loads(out)["updated"]) == (0, 3)


def test_doctor_fails_with_the_fix_when_vectors_are_missing(catalog, built, tmp_path):
    from catalog.store import Database

    database = Database.at(tmp_path / "home")
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM embeddings WHERE side = 'document'")
    database.close()
    code, out, _ = catalog("doctor")
    assert code == 1
    assert "catalog index update --dataset notes" in out


def test_config_shows_values_and_where_they_come_from(catalog, monkeypatch):
    monkeypatch.setenv("IDX_RAG_V2__RRF_K", "17")
    monkeypatch.setenv("IDX_RAG_V2__QDRANT_API_KEY", "s3cret")
    monkeypatch.setenv("IDX_RAG_V2__QDRANT_URL", "bob:s3cret@host:6333")  # without a scheme
    _, out, _ = catalog("config")
    assert "IDX_RAG_V2__RRF_K = 17  [environment]" in out
    assert "s3cret" not in out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("search", "x", "-d", "nope"), 1, "no dataset 'nope'"),
        (("search", "x", "--filter", "color=red"), 1, "no document has the field 'color'"),
        (("search", "x", "--filter", "color"), 1, "field=value"),
        (("search", "", "-d", "notes"), 1, "empty"),
        (("search", "x", "--preset", "nope"), 1, "no preset 'nope'"),
        (("index", "build", "/no/such/folder", "-d", "notes"), 1, "/no/such/folder"),
        (("index", "build", ".", "-d", "a/b"), 1, "dataset 'a/b'"),
        (("get", "#ffffffff"), 1, "no document"),
        (("index", "build", "/"), 2, "name the dataset with --dataset"),
        (("index", "build", "--include", "*.md"), 2, "need a folder"),
        (("search", "k", "--mode", "fuzzy"), 2, "'fuzzy' is not one of 'lexical', 'vector', 'h"),
        (("browse", "--sort", "age"), 2, "'age' is not one of 'best', 'name'"),
        (("generate", "poem", "--topic", "k"), 2, "'poem' is not one of 'blueprint', 'pdr'"),
        (("ask", "who?", "--top-k", "0"), 2, ": must be at least 1"),
        (("search", "keys", "--top-k", "abc"), 2, ": must be a valid integer"),
        (("compare", "--golden", "x", "--top-k", "0"), 2, ": must be at least 1"),
        (("search", "x", "--datset", "n"), 2, "option: --datset; did you mean --dataset?"),
        (("index", "update", "--datset", "n"), 2, "did you mean --dataset?"),
        (("serve", "--port", "1"), 2, "did you mean --http?"),
        (("index", "build", ".", "--name", "a"), 2, "did you mean --dataset?"),
        (("--hme", "store", "status"), 2, "did you mean --home?"),
        (("search", "a", "b"), 2, 'the query, put it in quotes: "a b"'),
        (("collection", "search", "a", "b"), 2, 'the query, put it in quotes: "a b"'),
        (("ask", "a", "b", "--json"), 2, 'the question, put it in quotes: "a b"'),
    ],
)
def test_a_call_that_cannot_work_ends_with_one_or_two_and_says_why(
    catalog, shared, words, code, told
):
    ended, out, err = catalog(*words)
    assert (ended, out) == (code, "")
    assert told in " ".join(err.split())
    assert code == 2 or err.startswith("catalog: ")


def test_a_store_that_is_not_a_database_is_a_clear_error(catalog, tmp_path):
    home = tmp_path / "broken"
    home.mkdir()
    (home / "catalog.db").write_bytes(b"this is not a database at all, not even nearly" * 50)
    code, _, err = catalog("status", "--home", home)
    assert code == 1
    assert "store cannot be read" in err


def test_the_home_may_be_named_before_or_after_the_command(catalog, notes, tmp_path):
    catalog("--home", tmp_path / "one", "index", "build", notes, "-d", "notes")
    code, out, _ = catalog("index", "stats", "--home", tmp_path / "one", "--json")
    assert (code, json.loads(out)["documents"]) == (0, 3)


def test_text_from_documents_cannot_steer_the_terminal():
    assert "\x1b" not in safe("\x1b[31mred\x1b[0m \u202eright to left")
    assert safe("tabs\tand\nlines") == "tabs\tand\nlines"


@pytest.mark.slow
def test_help_and_import_load_no_heavy_library():
    heavy = [
        "llama_index",
        "torch",
        "onnxruntime",
        "qdrant_client",
        "qdrant_edge",
        "fastembed",
        "sqlalchemy",
        "numpy",
    ]
    check = (
        "import sys, catalog, catalog.interfaces.cli.commands as a\n"
        "from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(a.app, ['--help']).exit_code == 0\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


NOT_SEARCHED_WITH = [
    *("llama_index", "nltk", "fastembed", "qdrant_client", "qdrant_edge", "torch", "httpx"),
    *("fastapi", "mcp", "catalog.core.agents", "catalog.core.answers"),
    *("catalog.library.browse", "catalog.library.get", "catalog.retrieval.expansion"),
    *("catalog.retrieval.rerank", "catalog.ingest.readers"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "besides"),
    [("lexical", ["onnxruntime", "tokenizers", "catalog.store.vectors.flat"]), ("hybrid", [])],
)
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


@pytest.mark.slow
def test_an_interrupted_build_says_how_to_continue_and_the_next_run_does(notes, tmp_path):
    for number in range(15):
        (notes / f"more{number}.md").write_text(
            f"# {number}\n\n" + f"Sentence {number} here. " * 100
        )
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script = heeding + "from catalog.interfaces.cli import main; main()"  # whoever started us
    command = [sys.executable, "-c", script]
    build = [*command, "index", "build", str(notes), "--dataset", "notes", "--json"]
    environment = {**os.environ, "IDX_RAG_V2__INGEST__GROUP_CHARS": "2500"}
    process = subprocess.Popen(
        build, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_for_documents(tmp_path / "home", process, at_least=2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    assert b"run the same command to continue" in err
    assert b"Traceback" not in err
    done = subprocess.run(build, env=environment, capture_output=True, check=True)
    report = json.loads(done.stdout)
    assert report["documents"] == 18
    assert report["unchanged"] > 0


def wait_for_documents(home: Path, process: subprocess.Popen, at_least: int) -> None:
    import sqlite3

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (home / "catalog.db").exists():
            try:
                with sqlite3.connect(home / "catalog.db") as connection:
                    (count,) = connection.execute("SELECT count(*) FROM documents").fetchone()
            except sqlite3.OperationalError:
                count = 0
            if count >= at_least:
                return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            pytest.fail("the build ended before it was interrupted")
    pytest.fail("the build stored nothing in a minute")


def test_a_build_without_a_folder_reads_the_dataset_again_with_the_same_ids(catalog, built):
    _, out, _ = catalog("search", "keys backups", "--json")
    before = [one["chunk_id"] for one in json.loads(out)["results"]]
    code, out, _ = catalog("index", "build", "--json")
    report = json.loads(out)
    assert (code, report["updated"], report["unchanged"]) == (0, 3, 0)
    _, out, _ = catalog("search", "keys backups", "--json")
    assert [one["chunk_id"] for one in json.loads(out)["results"]] == before
    assert json.loads(catalog("index", "build", "-d", "notes", "--json")[1])["documents"] == 3


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


@pytest.mark.parametrize(
    ("folder", "name"), [("notes", "notes"), ("My notes (2)/", "My-notes-2"), ("one.md", "one")]
)
def test_a_dataset_is_named_after_its_folder(catalog, tmp_path, folder, name):
    file = tmp_path / folder if folder.endswith(".md") else tmp_path / folder / "keys.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text("Rotate the keys.\n", encoding="utf-8")
    code, out, _ = catalog("index", "build", tmp_path / folder)
    assert (code, out.splitlines()[0]) == (0, f"dataset: {name}")
    found = json.loads(catalog("search", "keys", "--json")[1])["results"]
    assert [one["dataset"] for one in found] == [name]


def test_browse_shows_what_there_is_and_json_has_it_all(catalog, shared):
    code, out, err = catalog("browse", "--type", "md")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines() if line.startswith("[")] == [
        "guides/backup.md",
        "keys.md",
    ]
    assert err.startswith("1-2 of 2 documents (2 md) in ")
    _, out, _ = catalog("browse", "--name", "KEYS", "--json")
    (entry,) = json.loads(out)["entries"]
    assert (entry["path"], entry["file_type"], entry["dataset"]) == ("keys.md", "md", "notes")
    assert entry["bytes"] == (shared / "keys.md").stat().st_size
    code, out, err = catalog("browse", "--type", "pdf")
    told = "no document has the file type 'pdf'; file types: md (2), txt (1)"
    assert (code, out, err) == (1, "", f"catalog: {told}\n")
    code, out, err = catalog("browse", "--name", "qqqq")
    assert (code, out) == (0, "No document in notes matches.\n")
    code, out, err = catalog("browse", "--type", "md", "--offset", "98")
    assert (code, out) == (0, "There is no document 99: the listing has 2 documents.\n")
    assert err.startswith("0 of 2 documents (2 md) in ")


def test_browse_counts_one_as_one_and_sizes_as_they_are_sorted(catalog, shared):
    _, out, err = catalog("browse", "--name", "KEYS")
    assert err.startswith("1-1 of 1 document (1 md) in ")
    size = (shared / "keys.md").stat().st_size
    assert f"  {size:,} bytes in 1 passage" in out


def test_the_status_of_an_empty_store_says_what_to_do(catalog, tmp_path, monkeypatch):
    home = tmp_path / "empty"
    with open_library(home):
        pass
    monkeypatch.setenv("IDX_HOME", str(home))
    code, out, err = catalog("status")
    assert (code, err) == (0, "")
    told = "no dataset yet: create one with 'catalog index build FOLDER'"
    assert out.splitlines()[-1] == told
    assert "None" not in out


def test_a_search_is_narrowed_by_type_and_name(catalog, shared):
    _, out, _ = catalog("search", "keys backups", "--name", "guides/", "--json")
    assert {one["path"] for one in json.loads(out)["results"]} == {"guides/backup.md"}
    code, out, err = catalog("search", "keys", "--type", "pfd")
    assert (code, out) == (1, "")
    assert "file types: md (2), txt (1)" in err


def test_ctrl_c_before_the_command_is_there_is_a_sentence(monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr("catalog.interfaces.cli._run", interrupt)
    with pytest.raises(SystemExit) as ending:
        main()
    assert ending.value.code == 130
    assert capsys.readouterr().err == "catalog: interrupted\n"


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


def test_an_error_that_is_no_ctrl_c_stays_what_it_is(tmp_path):
    (tmp_path / "sqlalchemy.py").write_text("raise OSError('broken')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "catalog", "browse"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "broken" in done.stderr


READING = (
    ["search", "keys"],
    ["get", "keys.md"],
    ["browse"],
    ["status"],
    ["serve", "--http", "127.0.0.1:0"],
    ["export", "notes.jsonl"],
    ["doctor"],
    ["backup", "copy.db"],
    ["index", "update"],
    ["index", "build"],
    ["index", "rebuild"],
    ["index", "stats"],
    ["runs", "list"],
    ["golden", "check", "golden.jsonl", "-d", "notes"],
)


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_a_command_that_reads_makes_no_store(command, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    golden = {"id": "q", "query": "keys", "expected": [{"path": "keys.md"}]}
    (tmp_path / "golden.jsonl").write_text(json.dumps(golden))
    before = sorted(tmp_path.iterdir())
    for place in (tmp_path / "mistyped", tmp_path / "mistyped/deep"):
        code, out, err = command(*arguments, "--home", place)
        assert (code, out) == (1, "")
        assert str(place) in err
    assert "no store" in err
    assert sorted(tmp_path.iterdir()) == before


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


def test_a_pipeline_that_writes_makes_the_store(tmp_path):
    search_v2.IngestionPipelineBuilderV2().build_pipeline("notes")
    search_v2.close()
    assert (tmp_path / "home/catalog.db").exists()


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


def test_restore_refuses_a_file_that_is_not_a_copy_or_is_the_store_itself(catalog, built, tmp_path):
    store, other = tmp_path / "home" / "catalog.db", tmp_path / "notes.txt"
    other.write_text("no store at all")
    for command, file, told in (
        ("restore", other, "is not a copy of a store"),
        ("restore", store, "is the store itself"),
        ("backup", store, "is the store itself"),
    ):
        code, _, err = catalog(command, file, "--force")
        assert (code, told in err) == (1, True), err
    assert catalog("search", "walrus")[0] == 0


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_a_restore_checks_its_file_before_what_an_earlier_one_left(
    catalog, built, tmp_path, options
):
    (tmp_path / "home" / "catalog.db.before-restore").touch()
    (tmp_path / "notes.txt").write_text("no store at all")
    for name, told in (
        ("none.db", "there is no copy of a store at"),
        ("notes.txt", "is not a copy of a store"),
    ):
        code, _, err = catalog("restore", tmp_path / name, *options)
        assert (code, told in err, "--force" in err) == (1, True, False), err


@pytest.mark.parametrize("content", [None, b"", b"no store at all"])
def test_a_restore_that_fails_leaves_no_folder_behind(catalog, tmp_path, content):
    copy, home = tmp_path / "copy.db", tmp_path / "new" / "home"
    if content is not None:
        copy.write_bytes(content)
    code, _, err = catalog("restore", copy, "--home", home)
    assert code != 0
    assert "copy.db" in err
    assert not home.parent.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("export", "out.jsonl"),
        ("backup", "copy.db"),
        ("restore", "copy.db"),
        ("index", "stats"),
        ("index", "update", "--dry-run"),
        ("logs", "queries"),
        ("doctor",),
        ("collection", "search", "keys"),
    ],
)
def test_a_process_bound_to_a_role_runs_no_command_that_does_not_heed_it(
    catalog, shared, tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IDX_ANSWERS__ROLES", "employee: unlabelled")
    monkeypatch.setenv("IDX_ANSWERS__ROLE", "employee")
    code, out, err = catalog(*words)
    assert (code, out) == (1, "")
    assert f"'catalog {words[0]}'" in err
    assert "unset IDX_ANSWERS__ROLE" in err
    assert not {one.name for one in tmp_path.iterdir()} & {"out.jsonl", "copy.db"}
    assert catalog("status")[0] == catalog("browse")[0] == 0


@pytest.fixture
def golden(tmp_path):
    """A file of one labelled query about the notes."""
    expected = [{"path": "keys.md", "grade": 3}]
    query = {"id": "q1", "query": "how often are keys rotated", "expected": expected}
    file = tmp_path / "golden.jsonl"
    file.write_text(json.dumps(query | {"difficulty": "easy", "kind": "semantic"}) + "\n")
    return file


def test_a_provider_that_is_given_as_a_model_is_told_how_to_be_given(catalog, shared):
    for words in (("models", "path", "static", "--fetch"),):
        code, _, err = catalog(*words)
        assert code == 1
        assert "static is a provider, not a model: --provider static NAME" in err
        assert "catalog models path" not in err


@pytest.mark.parametrize("text", ["Just some notes.\n", '{"id": 1}\n', '{"kind": "x"}\n'])
def test_a_file_that_export_did_not_write_is_told_as_such(catalog, tmp_path, monkeypatch, text):
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))
    file = tmp_path / "notes.jsonl"
    file.write_text(text)
    code, _, err = catalog("import", file)
    assert code == 1
    assert "line 1: it is not a line that 'catalog export' writes" in err


def test_one_of_a_thing_is_told_in_the_singular(catalog, notes, tmp_path):
    for file in notes.rglob("*.md"):
        file.unlink()
    assert catalog("index", "build", notes, "--dataset", "notes")[0] == 0
    assert "1 document, 1 passage, " in catalog("export", tmp_path / "out.jsonl")[1]
    catalog("search", "bread")
    assert "removed 1 document, 1 passage;" in catalog("index", "remove", "notes", "--yes")[1]


@pytest.mark.slow
def test_nothing_is_wider_than_the_terminal_but_paths_links_and_commands(
    catalog, shared, golden, monkeypatch
):
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
