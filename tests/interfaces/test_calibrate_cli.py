"""``catalog golden calibrate``, and what ``catalog search`` tells before and after it."""

import json
from random import Random

import pytest

from catalog.interfaces.cli import measure, options
from fakes import WordEncoder, open_library
from scripted import ScriptedReranker
from stores import open_store

TOPICS = [f"topic{number:02}" for number in range(25)]
PAGES = {f"docs/{one}.md": f"Everything about {one} is said on this page.\n" for one in TOPICS}


@pytest.fixture
def settings():
    """v2 settings of every command of the test; changed in place."""
    return {"vector_engine": "flat"}


@pytest.fixture
def reranker():
    return ScriptedReranker(1.5)


@pytest.fixture
def catalog(monkeypatch, command, tmp_path, settings, reranker):
    """Run the command over that store; exit code, standard output, error."""
    open_store(PAGES, tmp_path).close()

    def opened(context):
        return open_library(tmp_path / "home", WordEncoder(), **settings)

    monkeypatch.setattr("catalog.retrieval.rerank.get_reranker", lambda *_, **__: reranker)
    for module in (measure, options):
        monkeypatch.setattr(module, "open_library", opened)

    return command


@pytest.fixture
def labelled(tmp_path):
    """A query for each document, which alone answers it."""
    return written(tmp_path, TOPICS)


def written(folder, topics):
    file = folder / "set.jsonl"
    lines = [
        {"id": topic, "query": f"about {topic}", "expected": [{"path": f"{topic}.md"}]}
        for topic in topics
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def found(catalog, *arguments, query="about topic07"):
    code, out, err = catalog("search", query, "--json", *arguments)
    assert code == 0, err
    return json.loads(out)


def relevances(answer):
    return [one["relevance"] for one in answer["results"]]


@pytest.mark.slow
def test_searches_tell_a_relevance_that_is_fitted_to_the_labels_until_it_is_undone(
    catalog, labelled
):
    before = relevances(found(catalog))
    code, out, err = catalog("golden", "calibrate", "--golden", labelled)
    assert code == 0, err
    first, relevance, answers, last = out.splitlines()
    assert first == "set on docs, 25 queries: 250 passages, left out of the fit in turn:"
    assert relevance.startswith("  relevance is fitted to them: its log-likelihood rises by +0.")
    told = "of those with an answer, each fifth left out in turn"
    assert answers == f"  'ask' refuses 0% {told}"
    assert last == "'catalog golden calibrate --undo' takes it back"
    sure = found(catalog)
    best = sure["results"][0]
    assert relevances(sure) != before
    assert best["path"] == "topic07.md"
    assert best["relevance"] == sure["confidence"] > 0.5
    assert sure["low_confidence"] is False
    unsure = found(catalog, query="how far do zebras swim in rivers")
    assert unsure["confidence"] < 0.5
    assert unsure["low_confidence"] is True
    code, out, err = catalog("golden", "calibrate", "--undo")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "'ask' decides as usual again when to answer from docs",
        "relevance is the packaged calibration's again",
    ]
    assert relevances(found(catalog)) == before


@pytest.mark.slow
def test_a_fit_that_does_not_win_is_not_kept_and_said_so(catalog, tmp_path):
    before = relevances(found(catalog))
    drawn, file = Random(1), tmp_path / "noise.jsonl"  # answers that no score could tell
    lines = [
        {
            "id": topic,
            "query": f"everything about {topic}",
            "expected": [{"path": f"{page}.md"} for page in drawn.sample(TOPICS, 3)],
        }
        for topic in TOPICS
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, out, err = catalog("golden", "calibrate", "--golden", file)
    assert code == 0, err
    assert "relevance stays the packaged calibration's: the fit does not win" in out
    assert relevances(found(catalog)) == before
    code, out, err = catalog("golden", "calibrate", "--golden", written(tmp_path, TOPICS[:5]))
    assert (code, out) == (1, "")
    assert "20 relevant and 20 irrelevant passages, but there are 5 and 45" in err
    code, _, err = catalog("golden", "calibrate", "--golden", written(tmp_path, ["elsewhere"]))
    assert (code != 0, "1 of 1 labelled documents are not in 'docs'" in err) == (True, True)
    assert relevances(found(catalog)) == before


@pytest.mark.parametrize("arguments", [[], ["--undo", "--golden", "set.jsonl"]])
def test_labelled_queries_or_undo_but_not_both(catalog, arguments):
    code, _, err = catalog("golden", "calibrate", *arguments)
    assert code == 2
    assert "give the labelled queries, or --undo" in " ".join(err.replace("│", " ").split())


@pytest.mark.slow
def test_a_calibration_is_of_searches_with_vectors_or_by_words(catalog, labelled):
    hybrid, lexical = found(catalog), found(catalog, "--mode", "lexical")
    assert catalog("golden", "calibrate", "--golden", labelled)[0] == 0
    assert relevances(found(catalog)) != relevances(hybrid)
    assert relevances(found(catalog, "--mode", "lexical")) == relevances(lexical)


def test_a_threshold_goes_by_what_was_calibrated(catalog, labelled, settings):
    assert catalog("golden", "calibrate", "--golden", labelled)[0] == 0
    settings["similarity_threshold"] = 0.5
    listed = found(catalog, query="what is about topic07")["results"]
    assert [one["path"] for one in listed] == ["topic07.md"]


def test_a_search_reranks_when_told_to_whatever_the_settings(catalog, settings, reranker):
    assert "rerank" not in stages(found(catalog))
    assert stages(found(catalog, "--rerank"))["rerank"] == "ran"
    assert reranker.asked
    settings["rerank_enabled"] = True
    assert stages(found(catalog))["rerank"] == "ran"
    assert "rerank" not in stages(found(catalog, "--no-rerank"))


def test_an_expansion_without_a_language_model_is_one_line_that_names_the_setting(
    catalog, settings
):
    code, out, err = catalog("search", "about topic07", "--expand")
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("catalog: ")
    assert "IDX_LLM__PROVIDER" in err
    settings["expansion_enabled"] = True
    assert catalog("search", "about topic07")[0] == 1
    assert "expand" not in stages(found(catalog, "--no-expand"))


def stages(answer):
    return {one["name"]: one["status"] for one in answer["stages"]}


@pytest.mark.slow
@pytest.mark.parametrize("without", [25, 0])
def test_when_to_answer_is_fitted_to_questions_with_an_answer_and_maybe_without(
    catalog, tmp_path, without, monkeypatch
):
    lines = [json.loads(line) for line in written(tmp_path, TOPICS).read_text().splitlines()]
    lines += [
        {
            "id": f"no{n}",
            "query": f"is everything of mars {n} and venus big",
            "kind": "unanswerable",
        }
        for n in range(without)
    ]
    file = tmp_path / "both.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    question = "is everything of mars 3 and venus big"
    assert "everything about" in catalog("ask", question)[1].casefold()
    code, out, err = catalog("golden", "calibrate", "--golden", file)
    assert code == 0, err
    fitted = next(line for line in out.splitlines() if "'ask' refuses" in line)
    rest = " and 100% of those without" if without else ", each fifth left out in turn"
    assert fitted.startswith(f"  'ask' refuses 0% of those with an answer{rest}")
    assert "I don't see" in catalog("ask", question)[1]
    assert "topic07" in catalog("ask", "everything about topic07")[1]
    catalog("golden", "calibrate", "--undo")
    assert "everything about" in catalog("ask", question)[1].casefold()
    monkeypatch.setattr("catalog.evaluation.calibration.MOST_REFUSED", -1)
    out = catalog("golden", "calibrate", "--golden", file)[1]
    assert ("decides as before, for a fit to them refuses 0%" in out) == (not without)
    assert ("everything about" in catalog("ask", question)[1].casefold()) == (not without)
