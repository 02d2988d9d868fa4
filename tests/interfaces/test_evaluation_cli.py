"""``compare``, ``eval`` and ``runs`` as a person or a CI job uses them, with a tiny model."""

import json
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from catalog.evaluation import measurement
from catalog.evaluation.backends import V2Backend
from fakes import WordEncoder
from stores import open_store
from tables import read_cases, table

ANIMALS = read_cases(__file__)["animals"]
ZOO = {  # no word of the queries but the name is in them
    f"zoo/{name}.md": f"# One {name}\n\nA {name} sleeps in house {at} and eats at {at} o'clock.\n"
    for at, name in enumerate(ANIMALS)
}
OWN = f"""
ANIMALS = {ANIMALS!r}
calls = []
def first(query, k):
    calls.append(query)
    return [f"{{name}}.md" for name in ANIMALS if name in query][:k]
def last(query, k):
    right = [f"{{name}}.md" for name in ANIMALS if name in query]
    wrong = [f"{{name}}.md" for name in ANIMALS if name not in query]
    return [*wrong[:8], *right][:k]
def foreign(query, k):
    return ["/other/" + path for path in first(query, k)]
def strange(query, k):
    return [*first(query, k), "a.md", "b.md"]
def none(query):
    return []
def sometimes(query, k):
    return [] if "dodo" in query else first(query, k)
def broken(query, k):
    if "tapir" in query:
        raise OSError("lost \\udcff connection")
    return first(query, k)
def interrupted(query, k):
    raise KeyboardInterrupt
def loud(query, k):
    print('hello')
    return first(query, k)
"""
ROWS = [
    {
        "id": f"q{n:02}",
        "query": f"where does the {name} live",
        "difficulty": "easy" if n % 2 else "hard",
        "kind": "semantic",
        "expected": [{"path": f"{name}.md", "grade": 3}],
    }
    for n, name in enumerate(ANIMALS, start=1)
]
FIRST_LAST = ("--baseline", "own_zoo:first", "--candidate", "own_zoo:last")
LAST_LEXICAL = ("--baseline", "own_zoo:last", "--candidate", "lexical")


@pytest.fixture
def catalog(tmp_path, monkeypatch, command):
    """Run the command in this process, in a folder that holds ``own_zoo.py``."""
    open_store(ZOO, tmp_path, chunk_size=300).close()
    work = tmp_path / "work"
    work.mkdir()
    (work / "own_zoo.py").write_text(OWN)
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


def labelled(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def golden(tmp_path):
    return labelled(tmp_path / "zoo-questions.jsonl", ROWS)


@pytest.fixture
def few(tmp_path):
    """Six of the queries, for tests that count no more."""
    return labelled(tmp_path / "six.jsonl", ROWS[:6])


def recorded(catalog):
    return json.loads(catalog("runs", "list", "--json")[1])


@table("asked, code, told")
def test_a_call_that_cannot_work_says_why_and_records_nothing(catalog, few, asked, code, told):
    shutil.copy(few, "six.jsonl")
    Path("gone.jsonl").write_text(few.read_text().replace(".md", ".txt"))
    Path("twice.run").write_text("q01 Q0 aardvark.md 2 1.0 t\nq01 Q0 aardvark.md 1 9.0 t\n")
    ended, out, err = catalog(*shlex.split(asked))
    assert (ended, out) == (code, "")
    assert told in " ".join(err.replace("│", " ").split())
    assert code == 2 or err.startswith("catalog: ")
    assert recorded(catalog) == []
    assert not Path("new").exists()


# compare


@pytest.mark.slow
def test_compare_says_first_which_is_better_and_then_why(catalog, golden, tmp_path):
    report = tmp_path / "report.html"
    asked = ("compare", "--golden", golden, *LAST_LEXICAL, "--report")
    code, out, err = catalog(*asked, report)
    assert code == 0, err
    lines = out.splitlines()
    # the right document always first against always ninth: 1 against 1/log2(10)
    assert lines[0].startswith("lexical is better than own_zoo:last: nDCG@10 1.000 against 0.301, ")
    assert lines[0].endswith("p < .001, n = 30.")
    assert any(line.startswith("Success@1") and "30/0/0" in line for line in lines)
    assert any(line.startswith("hard") and "too few to tell" in line for line in lines)
    assert {"Largest wins:", f"Report: {report}"} <= {*lines}
    assert "lexical is better than own_zoo:last" in report.read_text(encoding="utf-8")
    assert len(recorded(catalog)) == 2
    code, out, err = catalog(*asked, tmp_path / "absent" / "report.html")
    assert (code, out) == (1, "")
    assert err.startswith("catalog: cannot write ")


@pytest.mark.slow
def test_compare_puts_v1_which_is_indexed_once_against_v2_by_default(catalog, golden):
    asked = ("compare", "--golden", golden, "--json", "--repeats", "1", "-k", "20")
    code, out, err = catalog(*asked)
    assert code == 0, err
    (line,) = [line for line in err.splitlines() if "search, has no index of 'zoo'" in line]
    assert "happens once" in line
    told = json.loads(out)
    assert (told["baseline"], told["candidate"]) == ("v1", "v2")
    assert (told["golden"], told["dataset"], told["top_k"]) == ("zoo-questions", "zoo", 20)
    assert told["failures"] == {"baseline": {}, "candidate": {}}
    assert told["failed_gates"] == []
    assert (told["metrics"][0]["metric"], told["metrics"][0]["n"]) == ("nDCG@10", 30)
    assert told["runs"]["candidate"]["metrics"]["R@10"] == 1
    assert told["runs"]["candidate"]["latency"]["p95"] > 0
    assert [one["backend"] for one in recorded(catalog)] in (["v1", "v2"], ["v2", "v1"])
    code, _, err = catalog(*asked)
    assert (code, "has no index" in err) == (0, False)


@pytest.mark.slow
def test_runs_are_written_as_files_that_can_be_compared_again(catalog, golden, tmp_path):
    folder = tmp_path / "runs"
    named = ("--baseline", "own_zoo:sometimes", "--candidate", "lexical")
    code, _, err = catalog("compare", "--golden", golden, "--runs", folder, *named)
    assert code == 0, err
    assert (folder / "lexical.run").read_text().split()[:4] == ["q01", "Q0", "aardvark.md", "1"]
    # own_zoo:sometimes found nothing for one query, so its file has no line for that
    files = sorted(folder.iterdir())
    code, out, err = catalog(
        "compare", "--golden", golden, "--json", "--baseline", files[1], "--candidate", files[0]
    )
    assert code == 0, err
    told = json.loads(out)
    means = {name: run["metrics"]["Success@1"] for name, run in told["runs"].items()}
    assert sorted(means.values()) == [pytest.approx(29 / 30), 1.0]
    assert told["runs"]["baseline"]["latency"] is None


@pytest.mark.slow
def test_a_recorded_run_can_be_the_baseline(catalog, golden):
    catalog("eval", "--golden", golden, "--mode", "lexical")
    (run,) = recorded(catalog)
    code, out, err = catalog(
        "compare", "--golden", golden, "--baseline", f"run:{run['id']}", "--candidate", "lexical"
    )
    assert code == 0, err
    assert out.startswith(f"No difference between lexical and lexical ({run['id']}) is shown")
    assert out.splitlines()[1].startswith("Both rank alike for every question")


@pytest.mark.slow
def test_recorded_runs_tell_how_many_questions_show_a_difference(catalog, golden):
    catalog("eval", "--golden", golden, "--backend", "own_zoo:sometimes", "--mode", "lexical")
    pair = [f"run:{one['id']}" for one in recorded(catalog)]
    asked = ("golden", "power", golden, "--baseline", pair[0], "--candidate", pair[1])
    code, out, err = catalog(*asked)
    assert code == 0, err
    # 1 of 30 questions is lost: variance 1/30, and .05 takes 7.8489 / 30 / .05² = 104.6
    assert "105 for 0.05" in out.splitlines()[0]
    assert json.loads(catalog(*asked, "--json")[1])["needed"]["0.05"][0] == 105


@pytest.mark.slow
def test_tune_writes_a_preset_that_every_command_takes_if_a_gain_is_shown(
    catalog, golden, few, tmp_path, monkeypatch
):
    file, report = tmp_path / "tuned.toml", tmp_path / "tuned.html"
    others = [*ANIMALS[1:], ANIMALS[0]]
    noise = [  # words find another animal
        row | {"query": f"lex: {other}\nvec: {name}"}
        for row, name, other in zip(ROWS, ANIMALS, others, strict=True)
    ]
    labelled(golden, noise)
    asked = ("tune", "--golden", golden, "--keep", "rerank_enabled", "--write", file)
    monkeypatch.setenv("IDX_RAG_V2__VECTOR_WEIGHT", "1.0")
    code, out, err = catalog(*asked, "--slower-by", "1000", "--report", report)
    monkeypatch.delenv("IDX_RAG_V2__VECTOR_WEIGHT")
    assert code == 0, err
    assert out.startswith("Adopt ")
    assert "! environment sets vector_weight and goes before a preset" in out
    assert {f"Report: {report}", f"Settings: {file}; use them with --preset {file}"} <= {
        *out.splitlines()
    }
    assert "Quality and time" in report.read_text()
    chosen = tomllib.loads(file.read_text())["rag_v2"]
    told = json.loads(catalog("config", "--preset", file, "--json")[1])
    values = {row["name"]: row["value"] for row in told}
    assert {name: values[f"rag_v2.{name}"] for name in chosen} == chosen
    # what was adopted is now what there is
    file.rename(tmp_path / "now.toml")
    code, out, err = catalog(
        *asked, "--slower-by", "1000", "--preset", tmp_path / "now.toml", "--json"
    )
    assert (code, json.loads(out)["adopted"], file.exists()) == (0, False, False)
    code, out, err = catalog("tune", "--golden", few)
    assert (code, out) == (1, "")
    assert "25 are the fewest that decide: label 19 more" in err

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(V2Backend, "prepare", stopped)
    code, out, err = catalog(*asked)
    assert (code, out, file.exists()) == (130, "", False)
    assert "nothing was written or changed" in err


@pytest.mark.slow
@pytest.mark.parametrize("asked", [("compare", *LAST_LEXICAL), ("eval", "--mode", "lexical")])
def test_labels_without_a_document_and_queries_without_a_label_are_reported(catalog, golden, asked):
    gone = [{"path": f"gone/{n:02}.md", "grade": 1} for n in range(12)]
    rows = [{**ROWS[0], "expected": ROWS[0]["expected"] + gone}, *ROWS[1:]]
    labelled(golden, [*rows, {"id": "none", "query": "which of them"}])
    doubts = [
        "12 of 42 labelled documents are not in 'zoo', so no search of it can find them: "
        + ", ".join(one["path"] for one in gone[:10])
        + " and 2 more",
        "1 of 31 queries have no label and count as unanswerable: none",
    ]
    code, out, err = catalog(*asked, "--golden", golden)
    assert code == 0, err
    told = [line for line in out.splitlines() if line.startswith("! ")]
    assert told[:2] == [f"! {doubt}" for doubt in doubts]
    if asked[0] == "compare":
        assert out.splitlines()[1] == told[0]  # right after the verdict
    assert json.loads(catalog(*asked, "--golden", golden, "--json")[1])["warnings"][:2] == doubts


@pytest.mark.slow
def test_a_gate_that_fails_ends_with_three_and_names_itself(catalog, golden):
    base = ["compare", "--golden", golden, *FIRST_LAST]
    gates = ["--fail-if", "ndcg@10 worse by 0.5", "--fail-if", "r@100 not as good within 0.1"]
    code, out, err = catalog(*base, *gates)
    assert (code, err.strip()) == (3, "catalog: failed: ndcg@10 worse by 0.5")
    assert out.startswith("own_zoo:last is worse than own_zoo:first")
    # first against ninth, for every query alike: 1/log2(10) less 1
    assert "FAILED  ndcg@10 worse by 0.5: difference -0.699, bounds [-0.699, -0.699]" in out
    assert "passed  r@100 not as good within 0.1: difference +0.000" in out
    code, out, err = catalog(*base, *gates, "--json")
    assert (code, err.strip()) == (3, "catalog: failed: ndcg@10 worse by 0.5")
    told = json.loads(out)
    assert told["failed_gates"] == ["ndcg@10 worse by 0.5"]
    assert [one["failed"] for one in told["gates"]] == [True, False]
    assert catalog(*base, "--fail-if", "ndcg@10 worse by 0.8")[0] == 0
    blind = ["--fail-if", "sr@10 worse", "--report", "blind.html"]  # no label has a span
    code, out, err = catalog(*base, *blind, "--fail-if", "ndcg@10 worse by 0.8")
    assert (code, "'sr@10 worse': not measured" in err) == (1, True)
    assert "passed  ndcg@10 worse by 0.8" in out
    assert Path("blind.html").exists()


@pytest.mark.slow
def test_aa_tells_how_often_gates_fire_for_nothing_and_fails_nothing(catalog, golden):
    base = ["compare", "--golden", golden, "--aa", *FIRST_LAST]
    code, out, err = catalog(*base)
    assert code == 0, err
    head, _, lines = out.partition("A/A: ")
    assert "own_zoo:last is worse" in head
    assert "of 1,000 comparisons in which neither side is better" in lines
    assert lines.splitlines()[2].endswith("%  ndcg@10 worse")
    code, out, _ = catalog(*base, "--json", "--fail-if", "ndcg@10 worse")
    told = json.loads(out)["aa"]
    assert (code, told["repetitions"], told["queries"], told["differing"]) == (3, 1000, 30, 30)


@pytest.mark.slow
def test_several_candidates_are_compared_in_one_table_with_gates_for_each(catalog, golden):
    base = ["compare", "--golden", golden, *FIRST_LAST, "--candidate", "lexical", "--aa"]
    code, out, err = catalog(*base, "--fail-if", "ndcg@10 worse", "--report", "all.html")
    assert (code, err.strip()) == (3, "catalog: failed: own_zoo:last: ndcg@10 worse")
    assert out.startswith("No best search is shown: own_zoo:first and lexical: nDCG@10")
    assert "own_zoo:last: FAILED  ndcg@10 worse" in out
    assert "lexical: passed  ndcg@10 worse" in out
    assert "group b" in Path("all.html").read_text()
    code, out, _ = catalog(*base, "--fail-if", "ndcg@10 worse", "--json")
    told = json.loads(out)
    assert (code, told["failed_gates"]) == (3, ["own_zoo:last: ndcg@10 worse"])
    assert told["groups"] == [["own_zoo:first", "lexical"], ["own_zoo:last"]]
    named = ["own_zoo:last", "lexical"]
    assert [one["candidate"] for one in told["gates"]] == named
    assert [one["candidate"] for one in told["aa"]] == named
    assert len(recorded(catalog)) == 6


def test_more_metrics_are_shown_when_they_are_named(catalog, few):
    base = ["compare", "--golden", few, "--json", *FIRST_LAST]
    told = json.loads(catalog(*base, "--metric", "mrr@10", "--metric", "P@5")[1])["metrics"]
    usual = ["nDCG@10", "Success@1", "R@10", "R@100"]
    assert [row["metric"] for row in told] == [*usual, "RR@10", "P@5"]


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


def test_eval_measures_what_is_named_in_that_order_whatever_a_search_prints(catalog, few):
    code, out, err = catalog(
        "eval", "--golden", few, "--json", "-k", "15", "--mode", "lexical", "--backend",
        "own_zoo:last", "--backend", "v2:fusion_mode=rrf", "--mode", "lexical",
        "--backend", "own_zoo:loud",
    )  # fmt: skip
    assert code == 0, err
    assert "hello" in err
    told = json.loads(out)
    names = [run["backend"] for run in told["runs"]]
    assert names == ["lexical", "own_zoo:last", "v2:fusion_mode=rrf", "own_zoo:loud"]
    assert told["top_k"] == 15
    # ninth: 1/9 for every query
    assert told["runs"][1]["metrics"]["RR@10"] == pytest.approx(1 / 9)
    assert [one["backend"] for one in told["against_last"]] == names[:3]
    assert told["against_last"][1]["difference"] > 0.5


# reuse


@pytest.fixture
def asked(monkeypatch):
    """The searches that were asked, v2 or a leg of it, in order."""
    names, search = [], V2Backend.search

    def counted(self, query, **how):
        names.append(self.name)
        return search(self, query, **how)

    monkeypatch.setattr(V2Backend, "search", counted)
    return names


@pytest.mark.slow
def test_reuse_asks_only_what_has_not_been_asked_or_changed(catalog, few, asked, tmp_path):
    base = ["eval", "--golden", few, "--mode", "vector"]
    catalog(*base)
    asked.clear()
    base += ["--mode", "lexical", "--reuse", "--json"]
    _, out, err = catalog(*base)
    assert ({*asked}, err.count("reusing run")) == ({"lexical"}, 1)
    assert [run["backend"] for run in json.loads(out)["runs"]] == ["vector", "lexical"]
    before = recorded(catalog)
    asked.clear()
    code, out, err = catalog(*base)
    assert (code, asked, err.count("reusing run")) == (0, [], 2)
    assert recorded(catalog) == before
    assert {run["id"] for run in json.loads(out)["runs"]} == {run["id"] for run in before}
    (tmp_path / "zoo" / "yak.md").write_text("# The yak\n\nThe yak has moved.\n")
    assert catalog("index", "update", "-d", "zoo")[0] == 0
    for more in ([], ["--reuse"], []):  # after a change, and without --reuse
        asked.clear()
        _, _, err = catalog("eval", "--golden", few, "--mode", "lexical", *more)
        assert (len(asked) > 0, "reusing" in err) == (not more, bool(more))


def test_another_search_is_always_asked_because_it_may_change_unseen(catalog, few):
    base = ["eval", "--golden", few, "--backend", "own_zoo:first", "--reuse"]
    catalog(*base)
    before = len(sys.modules["own_zoo"].calls)
    _, _, err = catalog(*base)
    assert len(sys.modules["own_zoo"].calls) == 2 * before
    assert "reusing" not in err


def test_a_run_with_failures_is_not_reused(catalog, few, monkeypatch):
    base = ["eval", "--golden", few, "--mode", "lexical", "--reuse"]
    with monkeypatch.context() as patched:
        patched.setattr(V2Backend, "search", lambda *_, **__: 1 / 0)
        catalog(*base)
    _, out, err = catalog(*base)
    assert "reusing" not in err
    assert "failed" not in out


def test_a_dataset_that_changes_while_it_is_asked_is_not_measured(catalog, few, monkeypatch):
    digests = iter(("before", "after"))
    monkeypatch.setattr(measurement, "corpus_digest", lambda *_: next(digests))
    code, _, err = catalog("eval", "--golden", few, "--mode", "lexical")
    assert code == 1
    assert "changed during the measurement" in err
    assert recorded(catalog) == []


def test_ctrl_c_says_that_no_run_is_recorded(catalog, few):
    baseline = ("--baseline", "own_zoo:interrupted", "--candidate", "lexical")
    code, out, err = catalog("compare", "--golden", few, *baseline)
    assert (code, out, "finished work is kept" in err) == (130, "", False)
    assert "no run is recorded before all queries are answered" in err
    assert recorded(catalog) == []


@pytest.mark.slow
def test_a_recorded_run_keeps_its_failures_and_is_not_compared_with_other_queries(catalog, golden):
    catalog("eval", "--golden", golden, "--backend", "own_zoo:broken")
    run = f"run:{recorded(catalog)[0]['id']}"
    base = ["compare", "--golden", golden, "--baseline", "lexical", "--candidate", run]
    code, out, _ = catalog(*base)
    assert code == 0
    assert "failed on 1 of 30 queries" in out
    assert "OSError" in out
    assert "connection" in json.loads(catalog(*base, "--json")[1])["failures"]["candidate"]["q20"]
    code, _, err = catalog(*base, "--fail-if", "p95_ms > 0")
    assert (code, "has no times" in err) == (1, True)
    labelled(golden, [*ROWS[:-1], ROWS[-1] | {"query": "where is the gnu"}])
    code, _, err = catalog(*base)
    assert (code, "measure again" in err) == (1, True)


@pytest.mark.slow
def test_a_shallow_recorded_run_is_not_compared_deeper(catalog, few):
    catalog("eval", "--golden", few, "--mode", "lexical", "--top-k", "5")
    run = f"run:{recorded(catalog)[0]['id']}"
    base = ["compare", "--golden", few, "--baseline", "lexical", "--candidate", run]
    code, _, err = catalog(*base)
    assert (code, "use --top-k 5" in err) == (1, True)
    code, out, _ = catalog(*base, "--top-k", "5")
    assert (code, "Only 5 passages were requested" in out) == (0, True)


# runs


@pytest.mark.slow
def test_runs_are_listed_shown_and_told_apart(catalog, golden, few):
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

    diff = ("runs", "diff", runs["own_zoo:last"], runs["lexical"])
    code, out, _ = catalog(*diff)
    assert code == 0
    assert "  mode: None → lexical" in out
    assert any(line.startswith("nDCG@10") and "30/0/0" in line for line in out.splitlines())
    told = json.loads(catalog(*diff, "--json")[1])
    assert told["metrics"]["RR@10"]["difference"] == pytest.approx(1 - 1 / 9)

    catalog("eval", "--golden", few, "--mode", "lexical")
    code, out, err = catalog("runs", "diff", recorded(catalog)[0]["id"], runs["lexical"])
    assert (code, out) == (1, "")
    assert "have different queries" in err
