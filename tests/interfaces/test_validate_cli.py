"""``catalog validate`` as a person or a CI job uses it."""

import json
import shutil
from pathlib import Path

import pytest

from fakes import WordEncoder

EXAMPLES = Path(__file__).parents[2] / "examples"
SUITE = Path(__file__).with_name("suite.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The home of a store of the example's book, embedded by words alone."""
    from catalog.core.settings import load_settings
    from catalog.embedding.model import EmbeddingModel
    from catalog.library.indexing import Indexer
    from catalog.library.library import Library

    home = tmp_path_factory.mktemp("book") / "home"
    rag = {"vector_engine": "flat"}
    overrides = {"home": home, "rag_v2": rag}
    settings = load_settings(preset="book", overrides=overrides).settings
    with Library(settings, model=EmbeddingModel(WordEncoder())) as library:
        Indexer(library).build(EXAMPLES / "book", "book")
    return home


@pytest.fixture
def validate(built, tmp_path, monkeypatch, command):
    """Runs the command on a copy of the store with a suite of this text."""
    shutil.copytree(built, tmp_path / "home")
    monkeypatch.setattr("catalog.embedding.get_encoder", lambda *_: WordEncoder())
    monkeypatch.setenv("IDX_RAG_V2__VECTOR_ENGINE", "flat")

    def run(text, *arguments):
        (tmp_path / "birds.toml").write_text(text, encoding="utf-8")
        return command("validate", "--suite", tmp_path / "birds.toml", *arguments)

    return run


@pytest.mark.slow
def test_a_dataset_that_keeps_its_limits_is_ready_and_the_exit_code_says_so(validate):
    code, out, err = validate(SUITE, "--preset", "book")
    assert code == 0, err
    assert out.startswith(
        "# Validation of book by birds\n\n**READY**: all criteria are met on the 2 "
    )
    assert "Filtered; filters {'section': 'Sensor simulation'}; 1 of 1 expected sources" in out
    assert "preset book, mode hybrid, embedding model words" in out


@pytest.mark.slow
def test_one_that_does_not_is_not_ready_and_the_report_says_why(validate, tmp_path):
    strict = SUITE.replace("search_p95_ms = 60000", "search_p95_ms = 0.001")
    report = tmp_path / "report.md"
    code, out, _ = validate(strict, "--report", report)
    assert code == 1
    assert out.startswith("NOT READY\nSC-004: searching with its vector, p95 is ")
    assert "# Validation of book by birds\n\n**NOT READY**" in report.read_text(encoding="utf-8")
    code, out, _ = validate(strict, "--json")
    told = json.loads(out)
    assert (code, told["ready"], [one["passed"] for one in told["questions"]]) == (
        1,
        False,
        [True, True],
    )


def test_a_suite_or_a_report_that_cannot_be_used_is_refused_before_anything_is_asked(
    validate, command, tmp_path
):
    code, out, err = validate(SUITE.replace('"general"', '"odd"'))
    assert (code, out) == (1, "")
    assert "query nodes: kind: must be 'general'" in err
    code, _, err = validate(SUITE.replace("section = ", "chapter = ", 1))
    assert code == 1
    assert "query sensors: no document has the field 'chapter'" in err
    code, _, err = validate(SUITE, "--report", tmp_path / "none" / "report.md")
    assert (code, "its folder does not exist" in err) == (1, True)
    assert command("validate")[0] == 2
    assert command("validate", "--example", "--suite", tmp_path / "birds.toml")[0] == 2


@pytest.mark.slow
@pytest.mark.model
def test_a_stranger_sees_the_example_ready_in_one_command(command, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    code, out, err = command("validate", "--example")
    assert code == 0, err
    assert "**READY**: all criteria are met on the 7 questions of the suite." in out
    for name in ("SC-001", "SC-002", "SC-003", "SC-004", "SC-005", "R-01", "R-02", "R-03"):
        assert name in out
    assert list(tmp_path.glob("catalog-example-*")) == [], "its store is gone"
