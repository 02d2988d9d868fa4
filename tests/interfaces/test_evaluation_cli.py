"""``compare``, ``eval`` and ``runs`` as a person or a CI job uses them, with a tiny model."""

import json
import shutil
import sys

import pytest

from catalog.evaluation import run_records as records
from catalog.evaluation.backends import V2Backend
from catalog.interfaces.cli import main
from fakes import WordEncoder

ANIMALS = [
    "aardvark", "badger", "camel", "dingo", "eagle", "ferret", "gibbon", "heron", "ibex", "jackal",
    "koala", "lemur", "marmot", "newt", "otter", "panda", "quail", "raven", "shrew", "tapir",
    "urchin", "vole", "walrus", "xerus", "yak", "zebra", "bison", "cobra", "dodo", "gnu",
]  # fmt: skip
OWN = """
ANIMALS = {animals!r}
calls = []
def first(query, k):
    calls.append(query)
    return [f"{{name}}.md" for name in ANIMALS if name in query][:k]
def last(query, k):
    calls.append(query)
    right = [f"{{name}}.md" for name in ANIMALS if name in query]
    wrong = [f"{{name}}.md" for name in ANIMALS if name not in query]
    return [*wrong[:8], *right][:k]
def dotted(query, k):
    return ["./" + path for path in first(query, k)]
def foreign(query, k):
    return ["/other/" + path for path in first(query, k)]
def none(query):
    return []
def sometimes(query, k):
    return [] if "dodo" in query else first(query, k)
def broken(query, k):
    if "tapir" in query:
        raise OSError("lost \\udcff connection")
    return first(query, k)
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Documents and a store of them, built once; every test gets a copy of the store."""
    folder = tmp_path_factory.mktemp("template")
    (folder / "zoo").mkdir()
    for number, name in enumerate(ANIMALS):  # no word of the queries but the name is in them
        text = f"# One {name}\n\nA {name} sleeps in house {number} and eats at {number} o'clock.\n"
        (folder / "zoo" / f"{name}.md").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("catalog.embedding.get_encoder", lambda *_: WordEncoder())
        patch.setenv("IDX_RAG_V2__VECTOR_ENGINE", "flat")
        patch.setattr(
            sys,
            "argv",
            ["catalog", "index", "build", str(folder / "zoo"), "-d", "zoo",
             "--home", str(folder / "home")],
        )  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return folder


@pytest.fixture
def catalog(template, tmp_path, monkeypatch, command):
    """Run the command in this process, in a folder that holds ``own_zoo.py``."""
    shutil.copytree(template / "home", tmp_path / "home")
    work = tmp_path / "work"
    work.mkdir()
    (work / "own_zoo.py").write_text(OWN.format(animals=ANIMALS))
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("catalog.embedding.get_encoder", lambda *_: WordEncoder())
    monkeypatch.setenv("IDX_RAG_V2__VECTOR_ENGINE", "flat")
    sys.modules.pop("own_zoo", None)

    def run(*arguments):
        """Ask each query once; more often is for times, which few tests look at."""
        if arguments[0] in ("compare", "eval") and "--repeats" not in arguments:
            arguments += ("--repeats", "0")
        return command(*arguments)

    yield run
    sys.modules.pop("own_zoo", None)


@pytest.fixture
def golden(tmp_path):
    lines = [
        json.dumps(
            {
                "id": f"q{n:02}",
                "query": f"where does the {name} live",
                "difficulty": "easy" if n % 2 else "hard",
                "kind": "semantic",
                "expected": [{"path": f"{name}.md", "grade": 3}],
            }
        )
        for n, name in enumerate(ANIMALS, start=1)
    ]
    file = tmp_path / "zoo-questions.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture
def few(golden):
    """Six of the queries, for tests that count no more."""
    golden.write_text("".join(golden.read_text().splitlines(keepends=True)[:6]))
    return golden


def calls():
    return len(sys.modules["own_zoo"].calls)


def recorded(catalog):
    return json.loads(catalog("runs", "list", "--json")[1])


# compare


def test_compare_says_first_which_is_better_and_then_why(catalog, golden):
    code, out, err = catalog(
        "compare", "--golden", golden, "--baseline", "own_zoo:last", "--candidate", "lexical"
    )
    assert code == 0, err
    lines = out.splitlines()
    # the right document always first against always ninth: 1 against 1/log2(10)
    assert lines[0].startswith("lexical is better than own_zoo:last: nDCG@10 1.000 against 0.301, ")
    assert lines[0].endswith("p < .001, n = 30.")
    assert any(line.startswith("Success@1") and "30/0/0" in line for line in lines)
    assert any(line.startswith("hard") and "too few to tell" in line for line in lines)
    assert "Largest wins:" in lines
    assert len(recorded(catalog)) == 2


def test_a_path_written_otherwise_is_the_same_document(catalog, golden):
    code, out, _ = catalog(
        "compare", "--golden", golden, "--baseline", "own_zoo:dotted",
        "--candidate", "own_zoo:first", "--json",
    )  # fmt: skip
    assert code == 0
    runs = json.loads(out)["runs"]
    assert runs["baseline"]["metrics"] == runs["candidate"]["metrics"]
    assert runs["baseline"]["metrics"]["nDCG@10"] == 1.0


def test_a_search_that_names_no_document_of_the_dataset_gets_no_verdict(catalog, few):
    code, out, err = catalog(
        "compare", "--golden", few, "--baseline", "own_zoo:foreign", "--candidate", "lexical"
    )
    assert (code, out) == (1, "")
    assert "own_zoo:foreign names no document of the dataset: it shows '/other/" in err


@pytest.mark.slow
def test_compare_puts_v1_against_v2_by_default(catalog, golden):
    code, out, err = catalog("compare", "--golden", golden, "--json", "--repeats", "1", "-k", "20")
    assert code == 0, err
    told = json.loads(out)
    assert (told["baseline"], told["candidate"]) == ("v1", "v2")
    assert (told["golden"], told["dataset"], told["top_k"]) == ("zoo-questions", "zoo", 20)
    assert told["failures"] == {"baseline": {}, "candidate": {}}
    assert told["failed_gates"] == []
    assert told["metrics"][0]["metric"] == "nDCG@10"
    assert told["metrics"][0]["n"] == 30
    assert told["runs"]["candidate"]["metrics"]["R@10"] == 1
    assert told["runs"]["candidate"]["latency"]["p95"] > 0
    assert [one["backend"] for one in recorded(catalog)] in (["v1", "v2"], ["v2", "v1"])


def test_settings_are_compared_by_naming_them(catalog, few):
    code, _, err = catalog(
        "compare", "--golden", few, "--json", "--repeats", "0",
        "--baseline", "v2:fusion_mode=rrf", "--candidate", "v2:fusion_mode=relative_score",
    )  # fmt: skip
    assert code == 0, err
    names = {one["backend"]: one["id"] for one in recorded(catalog)}
    ids = [names["v2:fusion_mode=rrf"], names["v2:fusion_mode=relative_score"]]
    changed = json.loads(catalog("runs", "diff", *ids, "--json")[1])["changed"]
    assert changed == {"rag_v2.fusion_mode": {"before": "rrf", "after": "relative_score"}}


def test_a_search_of_the_working_directory_can_be_the_baseline(catalog, golden):
    code, out, err = catalog(
        "compare", "--golden", golden, "--baseline", "own_zoo:first", "--candidate", "lexical",
        "--repeats", "2",
    )  # fmt: skip
    assert code == 0, err
    assert out.startswith("No difference between lexical and own_zoo:first is shown: ")
    assert calls() == 1 + 30 * 3  # one to load, then each query once deep and twice timed


def test_the_report_is_written_and_its_place_told(catalog, golden, tmp_path):
    report = tmp_path / "report.html"
    code, out, _ = catalog(
        "compare", "--golden", golden, "--baseline", "own_zoo:last", "--candidate", "lexical",
        "--report", report,
    )  # fmt: skip
    assert code == 0
    assert f"Report: {report}" in out
    page = report.read_text(encoding="utf-8")
    assert "lexical is better than own_zoo:last" in page
    assert "where does the walrus live" in page


def test_a_report_that_cannot_be_written_is_one_sentence(catalog, golden, tmp_path):
    code, out, err = catalog(
        "compare", "--golden", golden, "--baseline", "own_zoo:last", "--candidate", "lexical",
        "--report", tmp_path / "absent" / "report.html",
    )  # fmt: skip
    assert (code, out) == (1, "")
    assert err.startswith("catalog: cannot write ")


def test_runs_are_written_as_files_that_can_be_compared_again(catalog, golden, tmp_path):
    folder = tmp_path / "runs"
    code, _, err = catalog(
        "compare", "--golden", golden, "--runs", folder,
        "--baseline", "own_zoo:sometimes", "--candidate", "lexical",
    )  # fmt: skip
    assert code == 0, err
    files = sorted(folder.iterdir())
    assert [file.suffix for file in files] == [".run", ".run"]
    columns = [line.split() for line in (folder / "lexical.run").read_text().splitlines()]
    assert {len(one) for one in columns} == {6}
    assert columns[0][:4] == ["q01", "Q0", "aardvark.md", "1"]
    # own_zoo:sometimes found nothing for one query, so its file has no line for that
    code, out, err = catalog(
        "compare", "--golden", golden, "--json", "--baseline", files[1], "--candidate", files[0]
    )
    assert code == 0, err
    told = json.loads(out)
    means = {name: run["metrics"]["Success@1"] for name, run in told["runs"].items()}
    assert sorted(means.values()) == [pytest.approx(29 / 30), 1.0]
    assert told["runs"]["baseline"]["latency"] is None


def test_a_recorded_run_can_be_the_baseline(catalog, golden):
    catalog("eval", "--golden", golden, "--mode", "lexical")
    (run,) = recorded(catalog)
    code, out, err = catalog(
        "compare", "--golden", golden, "--baseline", f"run:{run['id']}", "--candidate", "lexical"
    )
    assert code == 0, err
    assert out.startswith(f"No difference between lexical and lexical ({run['id']}) is shown")


@pytest.fixture
def doubtful(golden):
    """The set with labels of 12 documents that are not there, and two queries without any."""
    rows = [json.loads(line) for line in golden.read_text().splitlines()]
    for row in rows[:12]:
        row["expected"].append({"path": f"gone/{row['id']}.md", "grade": 1})
    rows += [{"id": f"none{n}", "query": "which of them"} for n in range(2)]
    golden.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return golden


DOUBTS = (
    "12 of 42 labelled documents are not in 'zoo', so no search of it can find them: "
    + ", ".join(f"gone/q{n:02}.md" for n in range(1, 11))
    + " and 2 more",
    "2 of 32 queries have no label and count as unanswerable: none0, none1",
)


@pytest.mark.parametrize(
    "asked",
    [
        ("compare", "--baseline", "own_zoo:last", "--candidate", "lexical"),
        ("eval", "--mode", "lexical"),
    ],
)
def test_labels_without_a_document_and_queries_without_a_label_are_reported(
    catalog, doubtful, asked
):
    command, *more = asked
    asked = [command, "--golden", doubtful, "--repeats", "0", *more]
    code, out, err = catalog(*asked)
    assert code == 0, err
    told = [line for line in out.splitlines() if line.startswith("! ")]
    assert told[:2] == [f"! {doubt}" for doubt in DOUBTS]
    if command == "compare":
        assert out.splitlines()[1] == told[0]  # right after the verdict
    assert json.loads(catalog(*asked, "--json")[1])["warnings"][:2] == [*DOUBTS]


def test_a_comparison_that_is_refused_says_how_many_labels_have_no_document(catalog, few):
    few.write_text(few.read_text().replace(".md", ".txt"))
    asked = ("compare", "--golden", few, "--baseline", "vector", "--candidate", "lexical")
    code, _, err = catalog(*asked)
    assert code == 1
    assert "6 of 6 labelled documents are not in 'zoo'" in err


def test_a_run_file_that_lists_a_document_twice_decides_nothing(catalog, golden, tmp_path):
    file = tmp_path / "twice.run"
    file.write_text("q01 Q0 aardvark.md 2 1.0 t\nq01 Q0 aardvark.md 1 9.0 t\n")
    code, out, err = catalog("compare", "--golden", golden, "--baseline", file)
    assert (code, out) == (1, "")
    assert "twice.run line 2: query 'q01' lists 'aardvark.md' again, after line 1" in err


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_gate_that_fails_ends_with_three_and_names_itself(catalog, golden, form):
    base = ["compare", "--golden", golden, "--repeats", "0", *form,
            "--baseline", "own_zoo:first", "--candidate", "own_zoo:last"]  # fmt: skip
    gates = ["--fail-if", "ndcg@10 worse by 0.5", "--fail-if", "r@100 not as good within 0.1"]
    code, out, err = catalog(*base, *gates)
    assert code == 3
    assert err.strip() == "catalog: failed: ndcg@10 worse by 0.5"
    if form:
        told = json.loads(out)
        assert told["failed_gates"] == ["ndcg@10 worse by 0.5"]
        assert [one["failed"] for one in told["gates"]] == [True, False]
        # first against ninth, for every query alike: 1/log2(10) less 1
        assert told["gates"][0]["high"] == pytest.approx(0.30103 - 1)
        assert "aa" not in told
    else:
        assert out.startswith("own_zoo:last is worse than own_zoo:first")
        assert "FAILED  ndcg@10 worse by 0.5: difference -0.699, bounds [-0.699, -0.699]" in out
        assert "passed  r@100 not as good within 0.1: difference +0.000" in out
    assert catalog(*base, "--fail-if", "ndcg@10 worse by 0.8")[0] == 0


def test_a_gate_that_cannot_be_read_stops_before_anything_is_asked(catalog, golden):
    for gate, message in (
        ("ndcg is bad", "'ndcg is bad' is not a gate such as 'ndcg@10 worse'"),
        ("ndcg worse", "no metric 'ndcg'; known: ndcg@10"),
        ("ndcg@10 < -0.01", "Write 'ndcg@10 worse', 'ndcg@10 worse by 0.01' or"),
    ):
        code, out, err = catalog(
            "compare", "--golden", golden, "--fail-if", gate, "--baseline", "own_zoo:first"
        )
        assert (code, out) == (2, "")
        assert message in err
    assert "own_zoo" not in sys.modules
    assert recorded(catalog) == []


@pytest.mark.slow
def test_aa_tells_how_often_gates_fire_for_nothing_and_fails_nothing(catalog, golden):
    base = ["compare", "--golden", golden, "--repeats", "0", "--aa",
            "--baseline", "own_zoo:first", "--candidate", "own_zoo:last"]  # fmt: skip
    code, out, err = catalog(*base)
    assert code == 0, err
    head, _, lines = out.partition("A/A: ")
    assert "own_zoo:last is worse" in head
    assert "of 1,000 comparisons in which neither side is better" in lines
    assert "nDCG@10 differs on 30 of 30 queries" in lines
    assert lines.splitlines()[2].endswith("%  ndcg@10 worse")
    code, out, _ = catalog(*base, "--json", "--fail-if", "ndcg@10 worse")
    assert code == 3
    told = json.loads(out)["aa"]
    assert (told["repetitions"], told["queries"], told["differing"]) == (1000, 30, 30)
    (gate,) = told["gates"]
    # all differences are equal, so sums are coins: P(at most 9 of 30 up) = .021, of 10 .049; the
    # resampling of queries changes nothing. At 10 the interval, 90 % from -.33, decides
    assert 0.01 < gate["share"] < 0.075


def test_more_metrics_are_shown_when_they_are_named(catalog, few):
    base = ["compare", "--golden", few, "--repeats", "0", "--json",
            "--baseline", "own_zoo:first", "--candidate", "own_zoo:last"]  # fmt: skip
    usual = json.loads(catalog(*base)[1])["metrics"]
    assert [row["metric"] for row in usual] == ["nDCG@10", "Success@1", "R@10", "R@100"]
    more = json.loads(catalog(*base, "--metric", "mrr@10", "--metric", "P@5")[1])["metrics"]
    assert [row["metric"] for row in more][4:] == ["RR@10", "P@5"]
    code, out, err = catalog(*base, "--metric", "ndcg@3")
    assert (code, out) == (2, "")
    assert "no metric 'ndcg@3'; known: nDCG@10, RR@10" in err


@pytest.mark.slow
def test_the_first_comparison_says_that_v1_indexes_and_the_second_does_not(catalog, few):
    base = ["compare", "--golden", few, "--repeats", "0", "-k", "10"]
    code, _, err = catalog(*base)
    assert code == 0, err
    (line,) = [line for line in err.splitlines() if "search, has no index of 'zoo'" in line]
    assert "happens once" in line
    code, _, err = catalog(*base)
    assert (code, "has no index" in err) == (0, False)


def test_a_search_that_fails_now_and_then_is_reported_in_text_and_json(catalog, golden):
    base = ["compare", "--golden", golden, "--baseline", "own_zoo:first",
            "--candidate", "own_zoo:broken"]  # fmt: skip
    code, out, _ = catalog(*base)
    assert code == 0
    assert "! own_zoo:broken failed on 1 of 30 queries, which score 0; first q20: OSError" in out
    code, out, _ = catalog(*base, "--json")
    assert code == 0
    assert "connection" in json.loads(out)["failures"]["candidate"]["q20"]


def test_a_comparison_that_could_see_nothing_is_refused_and_not_recorded(catalog, golden):
    code, out, err = catalog(
        "compare", "--golden", golden, "--baseline", "own_zoo:none", "--candidate", "own_zoo:none"
    )
    assert (code, out) == (1, "")
    assert "both score 0 on all 30 queries" in err
    assert "catalog golden check" in err
    assert recorded(catalog) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-d", "nope"], "no dataset 'nope'"),
        (["--baseline", "no_such_module"], "no search 'no_such_module'"),
        (["--baseline", "own_zoo:absent"], "no search 'own_zoo:absent'"),
        (["--baseline", "./absent.run"], "no search './absent.run'"),
        (["--candidate", "v2:chunk_size=20"], "chunk_size shapes the index"),
        (["--candidate", "run:abcdef"], "'abcdef': no such run"),
        (["--golden", "absent.jsonl"], "cannot read absent.jsonl"),
        (["--golden", "own_zoo.py"], "line 2: not JSON"),
    ],
)
def test_a_call_that_cannot_work_is_one_sentence_and_exit_code_one(
    catalog, golden, arguments, message
):
    code, out, err = catalog("compare", "--golden", golden, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("catalog: ")
    assert message in err


# eval


@pytest.mark.slow
def test_eval_measures_every_mode_by_default(catalog, golden):
    code, out, err = catalog("eval", "--golden", golden)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "zoo-questions on zoo: 30 queries, 100 deep"
    assert [line.split()[0] for line in lines[2:5]] == ["lexical", "vector", "v2"]
    assert lines[2].split()[1:4] == ["1.000", "[0.886,", "1.000]"]  # Wilson's
    assert lines[5].startswith("v2 − lexical: nDCG@10 ")
    assert lines[6].startswith("v2 − vector: nDCG@10 ")


def test_eval_measures_what_is_named_in_that_order(catalog, few):
    code, out, err = catalog(
        "eval", "--golden", few, "--json", "-k", "15", "--mode", "lexical",
        "--backend", "own_zoo:last", "--backend", "v2:fusion_mode=rrf", "--mode", "lexical",
    )  # fmt: skip
    assert code == 0, err
    told = json.loads(out)
    names = [run["backend"] for run in told["runs"]]
    assert names == ["lexical", "own_zoo:last", "v2:fusion_mode=rrf"]
    assert told["top_k"] == 15
    # ninth: 1/9 for every query
    assert told["runs"][1]["metrics"]["RR@10"] == pytest.approx(1 / 9)
    assert [one["backend"] for one in told["against_last"]] == names[:2]
    assert told["against_last"][1]["difference"] > 0.5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--mode", "magic"], 2, "'magic'; one of lexical, vector, hybrid"),
        (["--beir", "."], 2, "either --golden or --beir"),
        (["-d", "nope"], 1, "no dataset 'nope'"),
        (["--backend", "nope"], 1, "no search 'nope'"),
        (["--top-k", "0"], 2, "--top-k"),
    ],
)
def test_eval_refuses_what_it_cannot_do(catalog, golden, arguments, code, message):
    ended, out, err = catalog("eval", "--golden", golden, *arguments)
    assert (ended, out) == (code, "")
    assert message in " ".join(err.replace("│", " ").split())


def test_eval_needs_a_set(catalog):
    assert catalog("eval")[0] == 2


@pytest.fixture
def collection(tmp_path):
    """Six made-up articles in BEIR layout; one query is answered by two of them."""
    folder = tmp_path / "farm"
    (folder / "qrels").mkdir(parents=True)
    names = ["hen", "cow", "pig", "goat", "duck", "mule"]
    corpus = [
        {"_id": f"doc{n}", "title": f"The {name}", "text": f"A {name} on the farm, stable {n}."}
        for n, name in enumerate(names)
    ]
    queries = [{"_id": f"f{n}", "text": f"the {name}"} for n, name in enumerate(names)]
    for file, rows in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [f"f{n}\tdoc{n}\t2" for n in range(6)] + ["f0\tdoc1\t1"]
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n"
    )
    (folder / "qrels" / "empty.tsv").write_text("query-id\tcorpus-id\tscore\n")
    return folder


def test_a_beir_collection_is_indexed_and_measured(catalog, collection):
    code, out, err = catalog("eval", "--beir", collection, "--mode", "lexical", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["dataset"], told["golden"], told["queries"]) == ("farm", "farm-test", 6)
    assert told["runs"][0]["metrics"]["Success@1"] == 1
    assert told["runs"][0]["failed"] == 0
    assert catalog("search", "the goat", "-d", "farm", "--mode", "lexical")[0] == 0


def test_a_beir_collection_is_all_that_a_new_home_needs(catalog, collection, tmp_path):
    own = ("--home", tmp_path / "new")
    assert catalog("eval", "--beir", collection, "--mode", "lexical", *own)[0] == 0
    assert catalog("search", "the goat", "--mode", "lexical", *own)[0] == 0


@pytest.mark.parametrize("split", ["empty", "dev"])
def test_a_split_without_queries_is_one_sentence_and_makes_no_store(
    catalog, collection, split, tmp_path
):
    home = tmp_path / "new"
    code, out, err = catalog("eval", "--beir", collection, "--split", split, "--home", home)
    assert (code, out) == (1, "")
    assert split in err
    assert not home.exists()


# reuse


@pytest.fixture
def asked(monkeypatch):
    """The queries put to v2 or a leg of it, in order."""
    queries, search = [], V2Backend.search

    def counted(self, query, **how):
        queries.append((self.name, query.id))
        return search(self, query, **how)

    monkeypatch.setattr(V2Backend, "search", counted)
    return queries


@pytest.mark.slow
def test_reuse_asks_nothing_again_while_nothing_changed(catalog, few, asked):
    base = ["eval", "--golden", few, "--mode", "vector", "--mode", "lexical"]
    assert catalog(*base)[0] == 0
    before = recorded(catalog)
    asked.clear()
    code, out, err = catalog(*base, "--reuse", "--json")
    assert (code, asked) == (0, [])
    assert recorded(catalog) == before
    assert {run["id"] for run in json.loads(out)["runs"]} == {run["id"] for run in before}
    assert err.count("reusing run") == 2
    catalog(*base)
    assert len(asked) > 0, "without --reuse it is asked again"


def test_a_run_is_not_reused_after_a_change(catalog, few, template, tmp_path, asked):
    zoo = shutil.copytree(template / "zoo", tmp_path / "zoo")
    assert catalog("index", "build", zoo, "-d", "zoo")[0] == 0
    base = ["eval", "--golden", few, "--mode", "lexical", "--reuse"]
    catalog(*base)
    asked.clear()
    _, _, err = catalog(*base)
    assert (asked, err.count("reusing run")) == ([], 1)
    (zoo / "yak.md").write_text("# The yak\n\nThe yak has moved.\n")
    assert catalog("index", "update", "-d", "zoo")[0] == 0
    _, _, err = catalog(*base)
    assert len(asked) > 0
    assert "reusing" not in err
    assert len(recorded(catalog)) == 2


def test_another_search_is_always_asked_because_it_may_change_unseen(catalog, few):
    base = ["eval", "--golden", few, "--backend", "own_zoo:first", "--reuse"]
    catalog(*base)
    before = calls()
    _, _, err = catalog(*base)
    assert calls() == 2 * before
    assert "reusing" not in err


def test_a_run_with_failures_is_not_reused(catalog, few, monkeypatch):
    base = ["eval", "--golden", few, "--mode", "lexical", "--reuse"]
    with monkeypatch.context() as patched:
        patched.setattr(V2Backend, "search", lambda *_, **__: 1 / 0)
        catalog(*base)
    _, out, err = catalog(*base)
    assert "reusing" not in err
    assert "failed" not in out


def test_prints_of_a_search_do_not_spoil_the_json(catalog, few, tmp_path):
    with (tmp_path / "work" / "own_zoo.py").open("a") as file:
        file.write("def loud(query, k):\n    print('hello')\n    return first(query, k)\n")
    base = ["eval", "--golden", few, "--backend", "own_zoo:loud", "--json"]
    _, out, err = catalog(*base)
    assert json.loads(out)["runs"][0]["backend"] == "own_zoo:loud"
    assert "hello" in err


def test_only_what_changed_is_asked_again(catalog, few, asked):
    catalog("eval", "--golden", few, "--mode", "vector")
    asked.clear()
    code, out, err = catalog(
        "eval", "--golden", few, "--reuse", "--json", "--mode", "vector", "--mode", "lexical"
    )
    assert code == 0
    assert {name for name, _ in asked} == {"lexical"}
    assert err.count("reusing run") == 1
    assert [run["backend"] for run in json.loads(out)["runs"]] == ["vector", "lexical"]


def test_a_dataset_that_changes_while_it_is_asked_is_not_measured(
    catalog, few, template, tmp_path, monkeypatch
):
    zoo = shutil.copytree(template / "zoo", tmp_path / "zoo")
    assert catalog("index", "build", zoo, "-d", "zoo")[0] == 0
    digests = iter(("before", "after"))
    monkeypatch.setattr(records, "corpus_digest", lambda *_: next(digests))
    code, _, err = catalog("eval", "--golden", few, "--mode", "lexical")
    assert code == 1
    assert "changed during the measurement" in err
    assert recorded(catalog) == []


def test_a_recorded_run_keeps_its_failures_and_is_not_compared_with_other_queries(
    catalog, golden, template
):
    catalog("eval", "--golden", golden, "--backend", "own_zoo:broken")
    run = f"run:{recorded(catalog)[0]['id']}"
    base = ["compare", "--golden", golden, "--baseline", "lexical", "--candidate", run]
    code, out, _ = catalog(*base)
    assert code == 0
    assert "failed on 1 of 30 queries" in out
    assert "OSError" in out
    code, _, err = catalog(*base, "--fail-if", "p95_ms > 0")
    assert (code, "has no times" in err) == (1, True)
    golden.write_text(golden.read_text().replace('"grade": 3', '"grade": 2', 1))
    code, _, err = catalog(*base)
    assert (code, "measure again" in err) == (1, True)


def test_a_shallow_recorded_run_is_not_compared_deeper(catalog, few):
    catalog("eval", "--golden", few, "--mode", "lexical", "--top-k", "5")
    run = f"run:{recorded(catalog)[0]['id']}"
    base = ["compare", "--golden", few, "--baseline", "lexical", "--candidate", run]
    code, _, err = catalog(*base)
    assert (code, "use --top-k 5" in err) == (1, True)
    code, out, _ = catalog(*base, "--top-k", "5")
    assert (code, "Only 5 passages were requested" in out) == (0, True)


def test_beir_does_not_touch_a_dataset_made_of_something_else(catalog, tmp_path):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "title": "", "text": "yak"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "yak"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\td1\t1\n")
    code, _, err = catalog("eval", "--beir", folder, "--dataset", "zoo")
    assert (code, "use another --dataset" in err) == (1, True)


# runs


def test_runs_are_listed_shown_and_told_apart(catalog, golden):
    assert "No run is recorded yet" in catalog("runs", "list")[1]
    catalog("eval", "--golden", golden, "--backend", "own_zoo:last", "--backend", "lexical")
    runs = {run["backend"]: run["id"] for run in recorded(catalog)}
    _, out, _ = catalog("runs", "list")
    assert len(out.splitlines()) == 2
    assert f"{runs['lexical']}  " in out
    assert "zoo  zoo-questions  lexical  nDCG@10 1.0000" in out
    assert len(catalog("runs", "list", "--limit", "1")[1].splitlines()) == 1

    code, out, _ = catalog("runs", "show", runs["lexical"][:10])
    assert code == 0
    assert "  mode = lexical" in out
    assert "  30 queries, 100 deep; key " in out
    shown = json.loads(catalog("runs", "show", runs["lexical"], "--json")[1])
    assert shown["scores"]["nDCG@10"]["q01"] == 1
    assert shown["identity"]["pipeline"] == "v2"

    code, out, _ = catalog("runs", "diff", runs["own_zoo:last"], runs["lexical"])
    assert code == 0
    assert "  mode: None → lexical" in out
    assert any(line.startswith("nDCG@10") and "30/0/0" in line for line in out.splitlines())
    told = json.loads(catalog("runs", "diff", runs["own_zoo:last"], runs["lexical"], "--json")[1])
    assert told["metrics"]["RR@10"]["difference"] == pytest.approx(1 - 1 / 9)


def test_runs_of_different_sets_are_not_distinguished(catalog, golden, tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text("".join(golden.read_text().splitlines(keepends=True)[:5]))
    for queries in (golden, few):
        catalog("eval", "--golden", queries, "--mode", "lexical")
    ids = [run["id"] for run in recorded(catalog)]
    code, out, err = catalog("runs", "diff", *ids)
    assert (code, out) == (1, "")
    assert "have different queries" in err


@pytest.mark.parametrize("arguments", [["show", "nope"], ["diff", "nope", "nope"]])
def test_a_run_that_is_not_there_is_one_sentence(catalog, arguments):
    code, out, err = catalog("runs", *arguments)
    assert (code, out) == (1, "")
    assert "'nope': no such run; 'catalog runs list' shows them" in err
