"""``catalog replay`` as a person or a CI job uses it, over homes of thirty small documents."""

import json
from pathlib import Path

import pytest

from catalog import search_v2
from catalog.core.errors import InputError
from fakes import WordEncoder

NAMES = [f"{first}{last}" for first in ("oak", "elm", "fir", "ash", "yew") for last in "abcdef"]


@pytest.fixture
def catalog(tmp_path, monkeypatch, command):
    """Run the command in a folder with ``trees/``, its questions, and a home of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("catalog.embedding.get_encoder", lambda *_: WordEncoder())
    Path("trees").mkdir()
    rows = []
    for number, name in enumerate(NAMES):
        words = f"The {name} was planted in row {number}."
        Path(f"trees/{name}.md").write_text(f"# {name}\n\n{words}\n")
        label = {"path": f"{name}.md", "grade": 3, "span": words}
        rows.append({"id": name, "query": f"where is the {name}", "expected": [label]})
    Path("trees.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))
    assert command("index", "build", "trees")[0] == 0
    return command


SAVE = ("replay", "--save", "before.json", "--golden", "trees.jsonl")
FROM = ("replay", "--from", "before.json")


@pytest.mark.slow
def test_a_replay_without_a_change_passes_and_a_loss_fails(catalog):
    code, out, err = catalog(*SAVE)
    assert (code, out) == (0, "30 questions, written to before.json\n"), err
    code, out, _ = catalog(*FROM)
    assert (code, out.splitlines()[1]) == (
        0, "30 questions: 30 with the same list, mean churn 0.000 (1 − RBO, p = .9)"
    )  # fmt: skip
    for name in NAMES[:20]:  # renamed, so that labels find nothing
        Path(f"trees/{name}.md").rename(f"trees/new-{name}.md")
    assert catalog("index", "update", "-d", "trees", "--allow-deletions")[0] == 0
    code, out, _ = catalog(*FROM)
    assert (code, out.startswith("FAIL: labels show a loss: nDCG@10 -0.")) == (3, True)
    assert "  changed corpus: " in out
    assert "Answers lost from the first ten: 20" in out
    assert out.count(".md: 1 → not found\n") == 10  # and ten more
    assert "oaka: 'oaka.md' → 'new-oaka.md', which has “The oaka was planted in row 0.”" in out
    told = json.loads(catalog(*FROM, "--json")[1])
    assert (told["verdict"], len(told["drift"])) == ("FAIL", 20)

    before = Path("trees.jsonl").read_text()
    check = ("golden", "check", "trees.jsonl", "-d", "trees")
    code, out, _ = catalog(*check)
    assert (code, "; --write follows each arrow:" in out, Path("trees.jsonl").read_text()) == (
        1,
        True,
        before,
    )
    code, out, _ = catalog(*check, "--write")
    assert (code, "; the file follows each arrow:" in out) == (0, True)
    code, out, _ = catalog(*FROM, "--golden", "trees.jsonl")  # labels as they are now
    assert "Labels whose text" not in out


@pytest.mark.slow
def test_two_homes_are_asked_in_turn_and_lists_that_moved_without_labels_hold(catalog):
    Path("some.jsonl").write_text("\n".join(Path("trees.jsonl").read_text().split("\n")[:9]))
    assert catalog("index", "build", "trees", "--home", "other")[0] == 0
    code, out, err = catalog("replay", "--other-home", "other", "--golden", "some.jsonl")
    assert (code, out.startswith("PASS: no loss is shown; lists moved by 0.000")) == (0, True), err
    for name in NAMES[:9]:
        Path(f"trees/{name}.md").unlink()
    assert catalog("index", "update", "-d", "trees", "--home", "other")[0] == 0
    code, out, _ = catalog("replay", "--other-home", "other", "--golden", "some.jsonl")
    assert (code, out.startswith("HOLD: lists moved by 0.")) == (4, True)
    assert "9 labelled questions, it takes 25" in out
    assert "! 9 documents of one home only, first " in out
    asked = {"golden": "some.jsonl", "dataset": "trees"}
    assert search_v2.replay(other_home="other", **asked).verdict == "HOLD"
    assert search_v2.replay(other_home="other", moved=1, **asked).verdict == "PASS"
    with pytest.raises(InputError, match="give one of"):
        search_v2.replay(other_home="other", before="before.json")


@pytest.mark.slow
def test_the_log_is_asked_again_if_it_has_words(catalog, monkeypatch):
    code, _, err = catalog("replay", "--save", "before.json")
    assert (code, "the log has no question about 'trees'" in err) == (1, True)
    monkeypatch.setenv("IDX_LOG__VERBS", "search")
    catalog("search", "where is the oaka")
    code, _, err = catalog("replay", "--save", "before.json")
    assert (code, "1 question of the log have no words" in err) == (1, True)
    assert not Path("before.json").exists()
    monkeypatch.setenv("IDX_LOG__QUERY_TEXT", "true")
    for asked in ("where is the elma", "Where is  the elma", "where is the firb"):
        catalog("search", asked)
    code, out, err = catalog("replay", "--save", "before.json")
    assert (code, out) == (0, "2 questions, written to before.json\n")
    assert "1 question of the log have no words" in err
    assert "the log keeps no filters" in err
    code, out, _ = catalog(*FROM)
    assert (code, "2 questions: 2 with the same list" in out) == (0, True)


def test_a_replay_that_cannot_be_says_why_and_leaves_the_file(catalog):
    Path("before.json").write_text("[]")
    assert catalog("replay")[0] == 2
    assert catalog(*SAVE, "--from", "before.json")[0] == 2
    code, _, err = catalog(*FROM)
    assert (code, "is not a file of 'catalog replay --save'" in err) == (1, True)
    code, _, err = catalog(*SAVE, "--backend", "no.such:search")
    assert (code, "no search 'no.such:search'" in " ".join(err.split())) == (2, True)
    Path("own_stop.py").write_text("def search(query):\n    raise KeyboardInterrupt\n")
    assert catalog(*SAVE, "--backend", "own_stop:search")[0] == 130
    assert Path("before.json").read_text() == "[]"
