"""Settings chosen by labelled questions: lists that answer like engines, and choices that hold."""

import json
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from catalog.core.errors import BlindComparisonError, ConfigError, InputError, StoreBusyError
from catalog.core.settings import load_settings
from catalog.evaluation import tuning
from catalog.evaluation.comparison import decide_outcome
from catalog.evaluation.golden import GoldenQuery, GoldenSet
from catalog.evaluation.significance import paired_test
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.search import Searcher
from fakes import WordEncoder
from scripted import ScriptedReranker
from stores import open_store

CASES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
ANIMALS = CASES["animals"]
ZOO = {
    f"zoo/{name}.md": f"# The {name}\n\nA {name} sleeps in house {at} and eats at {at} o'clock.\n\n"
    f"## Days\n\nOn day {at} the {name} of house {at} is fed.\n"
    for at, name in enumerate(ANIMALS)
}


def asked(words="{own}", animals=ANIMALS):
    """One question for each animal, which its page answers; ``other`` is the next animal."""
    rows = zip(animals, [*animals[1:], animals[0]], strict=True)
    return GoldenSet(
        "zoo-questions",
        tuple(
            GoldenQuery(
                id=own, query=words.format(own=own, other=other), expected=[{"path": f"{own}.md"}]
            )
            for own, other in rows
        ),
    )


NOISE = asked("lex: {other}\nvec: {own}")  # words find the page of another animal


@pytest.fixture
def library(tmp_path):
    with open_store(ZOO, tmp_path) as opened:
        yield opened


def passages(parts, query, **options):
    found = Searcher(parts.library, parts).search(query, dataset="zoo", explain=True, **options)
    return [one.model_dump(exclude={"query"}) for one in found]


@pytest.mark.slow
@pytest.mark.both_stores
def test_over_recorded_lists_the_search_is_the_same_digit_by_digit(store_kind, tmp_path):
    with open_store(ZOO, tmp_path) as library:
        parts = SearchParts(library, make_reranker=lambda: ScriptedReranker(0.5))
        kept = tuning.RecordedParts(parts)
        for setting in CASES["settings"]:
            real = parts.with_settings({**setting, **tuning.NO_CACHE})
            recorded = tuning.RecordedParts(kept, tuple(setting.items()))
            if "bm25_k1" in setting:
                both = (passages(one, "house badger", mode="lexical") for one in (real, parts))
                assert next(both) != next(both)
            for query in CASES["queries"]:
                for options in ({}, {"filters": ["path~a"]}, {"top_k": 3}):
                    expected = passages(real, query, **options)
                    assert passages(recorded, query, **options) == expected, (setting, query)
            golden = asked(animals=ANIMALS[:4])
            runs = [
                kind("one", Searcher(library, one), "hybrid")
                for kind, one in ((tuning.V2Backend, real), (tuning.OrderOnly, recorded))
            ]
            for query in golden:
                lists = [run.search(query, dataset="zoo", top_k=10).hits for run in runs]
                assert [(hit.path, hit.score) for hit in lists[0]] == [
                    (hit.path, hit.score) for hit in lists[1]
                ]


@pytest.mark.slow
def test_engines_and_the_model_are_asked_once_for_each_question(tmp_path, monkeypatch):
    encoder, golden = WordEncoder(), asked()
    with open_store(ZOO, tmp_path, encoder) as library:
        engine, counted = library.indexes.lexical("zoo"), []
        search = engine.search
        monkeypatch.setattr(engine, "search", lambda *it: counted.append(it[0]) or search(*it))
        encoder.texts.clear()
        trial = tuning.Trial(Searcher(library), golden, "zoo")
        for weight in (1.0, 2.0, 3.0):
            trial.score((("vector_weight", weight),))
    assert len([text for text in counted if text in ANIMALS]) == len(ANIMALS)
    assert len([text for text in encoder.texts if text in ANIMALS]) == len(ANIMALS)


@pytest.mark.slow
def test_where_the_words_are_noise_the_search_is_tuned_to_meaning_only(library, tmp_path):
    tuned = tuning.tune(Searcher(library), NOISE, "zoo", keep=["rerank_enabled"], slower_by=1000.0)
    assert tuning.name_setting(tuned.chosen) == "meaning only"
    verdict = tuning.tuning_verdict(tuned)
    assert tuned.is_adopted
    assert verdict.startswith("Adopt meaning only: nDCG@10 +0.")
    # over the lists and by engines the same was found
    assert not any(
        "otherwise than over the recorded lists" in one for one in tuned.comparison.warnings
    )
    told = json.loads(json.dumps(tuning.tuning_dict(tuned)))
    certificate = told["certificate"]
    assert (certificate["n"], certificate["labels"]) == (len(ANIMALS), NOISE.digest)
    assert certificate["interval"][0] > 0
    file = tmp_path / "tuned.toml"
    file.write_text(tuning.preset_text(tuned, "vault"))
    rag = load_settings(preset=str(file)).settings.rag_v2
    assert (rag.lexical_weight, rag.max_chunks_per_doc, rag.chunk_min_size) == (0.0, 3, 300)
    assert f'# labels = "{NOISE.digest}"' in file.read_text()
    with pytest.raises(InputError, match="agents"):
        tuning.preset_text(tuned, "agents")
    page = tuning.render_tuning(tuned, created=datetime.now(UTC))
    assert "Quality and time" in page
    assert page.count('class="point better"') >= 1
    # found on questions that it never saw, by real searches
    again = asked("lex: {other}\nvec: where {own} sleeps")
    trial = tuning.Trial(Searcher(library), again, "zoo")
    before, after = (
        tuning.score_run(run, again).means["nDCG@10"]
        for run in trial.measure([(), tuned.chosen], len(ANIMALS))
    )
    assert after > before + 0.2


@pytest.mark.slow
def test_reranking_shows_how_far_it_is_and_a_second_run_finds_its_scores(library):
    class Shown:
        def __init__(self, stop_at=-1.0):
            self.parts, self.stop_at = [], stop_at

        def start(self, total, doing="", *, then=""):
            self.parts.append([doing, total, 0.0])

        def advance(self, amount, label, counts=""):
            self.parts[-1][2] += amount
            if self.parts[-1][0] == "reranking" and self.parts[-1][2] == self.stop_at:
                raise KeyboardInterrupt

    def run(reranker, shown):
        service = Searcher(library, SearchParts(library, make_reranker=lambda: reranker))
        return tuning.tune(service, NOISE, "zoo", slower_by=1e6, progress=shown)

    first, again, whole = ScriptedReranker(0.5), ScriptedReranker(0.5), Shown()
    with pytest.raises(KeyboardInterrupt):
        run(first, Shown(stop_at=len(ANIMALS) - 1))  # one question before the first setting's end
    run(again, whole)
    (_, total, done), *_ = [part for part in whole.parts if part[0] == "reranking"]
    assert done == pytest.approx(total)
    assert len(ANIMALS) <= total < 2 * len(ANIMALS)
    # the times of 10 questions and one more are measured without the cache: 3, 10 and 20 passages
    timed = 11 * (3 + 10 + 20)
    assert len(first.asked) > timed
    assert len(again.asked) < len(first.asked)


@pytest.mark.slow
def test_nothing_better_and_too_slow_both_keep_what_there_is(library):
    parts = SearchParts(library, make_reranker=lambda: ScriptedReranker(0.5))
    service = Searcher(library, parts)
    tuned = tuning.tune(service, asked(), "zoo", slower_by=1000.0)
    reranked = {dict(one.setting).get("rerank_candidates") for one in tuned.tried}
    assert {10, 20} <= reranked
    assert not tuned.is_adopted
    assert (tuned.chosen, tuned.gain.difference, tuned.needed) == ((), 0.0, 0)
    assert tuning.tuning_verdict(tuned).startswith("Keep what you have, nothing is better")
    tuned = tuning.tune(service, NOISE, "zoo", budget_ms=0.0)
    assert (tuned.is_shown, tuned.is_adopted) == (True, False)
    lost = replace(tuned, gain=paired_test(np.ones(60), np.full(60, 0.5)))
    assert "such as meaning only, are worse on other questions" in tuning.tuning_verdict(lost)
    assert any("was not tried" in one for one in tuned.comparison.warnings)  # the reranker
    assert "Keep what you have, meaning only takes over 0 ms" in tuning.tuning_verdict(tuned)


def test_a_set_that_cannot_decide_is_refused_with_what_it_lacks(library):
    service = Searcher(library)
    with pytest.raises(BlindComparisonError, match=r"24 answerable questions, .* label 1 more"):
        tuning.tune(service, asked(animals=ANIMALS[:24]), "zoo")
    with pytest.raises(InputError, match=r"'rrf' is not tried; tried are bm25_b"):
        tuning.tune(service, asked(), "zoo", keep=["rrf"])


@pytest.mark.slow
def test_a_dataset_that_changes_meanwhile_ends_the_work(library, monkeypatch):
    states = iter("ab")
    monkeypatch.setattr(tuning, "corpus_digest", lambda *_: next(states))
    with pytest.raises(StoreBusyError):
        tuning.tune(Searcher(library), asked(), "zoo", keep=sorted({*tuning.GROUPS["fusion"][0]}))


def test_a_preset_that_is_no_file_is_named():
    with pytest.raises(ConfigError, match=r"gone\.toml"):
        load_settings(preset="gone.toml")


GROUPS = {
    "a": [{"vector_weight": weight} for weight in (2.0, 3.0, 4.0)],
    "b": [{"rrf_k": k} for k in (10, 20, 30, 40)],
}


def test_groups_are_chosen_in_turn_and_the_present_wins_ties():
    means = {(): 0.5, (("vector_weight", 3.0),): 0.6, (("rrf_k", 20), ("vector_weight", 3.0)): 0.7}
    scores = {setting: np.full(4, mean) for setting, mean in means.items()}
    found = tuning.choose(lambda one: scores.get(one, np.full(4, 0.5)), GROUPS, np.arange(4))
    assert found == (("rrf_k", 20), ("vector_weight", 3.0))
    assert tuning.choose(lambda _: np.full(4, 0.5), GROUPS, np.arange(4)) == ()


def test_a_question_is_never_answered_by_a_choice_that_saw_it():
    # each setting is right on one question alone: whoever saw it would choose that setting
    options = {"one": [{"rrf_k": k} for k in range(1, 31)]}
    names = [(("rrf_k", k),) for k in range(1, 31)]
    scores = {name: np.eye(30)[at] for at, name in enumerate(names)}
    left_out = tuning.cross_validate(lambda one: scores.get(one, np.zeros(30)), options, 30)
    assert left_out.tolist() == [0.0] * 30


@pytest.mark.slow
def test_of_a_hundred_draws_without_a_difference_at_most_five_adopt():
    adopted = 0
    for draw in range(100):
        generator, drawn = np.random.default_rng([51, draw]), {}

        def score(setting, generator=generator, drawn=drawn):
            if setting not in drawn:
                drawn[setting] = generator.choice([0.0, 0.39, 0.5, 0.63, 1.0], 60)
            return drawn[setting]

        left_out = tuning.cross_validate(score, GROUPS, 60)
        adopted += decide_outcome(paired_test(score(()), left_out, resamples=2000)) == "better"
    assert adopted <= 5
