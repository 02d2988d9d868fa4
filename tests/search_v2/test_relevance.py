"""Relevance: the formula, the features of a passage, and which calibration is used."""

import json
import math
from dataclasses import asdict, replace
from importlib.resources import files

import pytest

from catalog.retrieval.fusion import FoundWords, RankedList, adaptive, relative_score, rrf
from catalog.retrieval.parts import SearchParts
from catalog.retrieval.relevance import (
    WORDS_ONLY,
    Calibration,
    Features,
    extract_features,
    find_calibration,
    judge_relevance,
    packaged_calibration,
    save_calibration,
)
from catalog.retrieval.snippets import Passage
from catalog.store.restriction import Spread
from fakes import open_library
from made_results import stored
from tables import table

MADE = Calibration(-1.0, cosine=3.0, words=0.5, rank=2.0, name=1.0, exact=4.0, keywords=-0.5)
BY_WORDS = Calibration(0.5)
LONG = "how do I rotate the keys of a service"


def chunk(name, text="text"):
    return stored(text, name, title="")


def ranked(leg, *hits, origin="original", weight=2.0, words=None):
    return RankedList(
        leg, "engine", "query", origin, weight, hits, Spread(1.0, 2.0), words or FoundWords()
    )


def passages(*lists, texts=None, heard=("lex", "vec")):
    """The passages that fusing the lists gives, by chunk."""
    texts = texts or {}
    fused = rrf(lists, k=0, bonus_first=0.0, bonus_second=0.0)
    return {
        one.key: Passage(
            chunk(one.key, texts.get(one.key, "text")), one.score, one, frozenset(heard)
        )
        for one in fused
    }


def seen(found, query=LONG):
    return dict(zip(found, extract_features(list(found.values()), query), strict=True))


def find_made(has_cosines):
    return MADE if has_cosines else BY_WORDS


def test_relevance_is_the_logistic_of_the_weighted_sum():
    # -1 + 3 * .8 + .5 * 1 + 2 * .5 + 1 * .4 = 3.3; 1 / (1 + e^-3.3) = .96443
    features = Features(cosine=0.8, words=1.0, rank=0.5, name=0.4)
    assert MADE.relevance(features) == pytest.approx(0.964429, abs=1e-6)
    assert Calibration(0).relevance(features) == 0.5
    for far in (1e3, 1e300, -1e3, -1e300):
        estimate = Calibration(0, cosine=1.0).relevance(Features(cosine=far))
        assert 0 < estimate <= 1
        assert (estimate > 0.5) == (far > 0)


def test_a_question_is_judged_by_the_cosine_the_share_of_its_words_and_the_place():
    # of "rotate", "keys" and "service", weighing 1, 1 and 2, passage b contains the first two
    words = FoundWords(weights={"rotate": 1.0, "keys": 1.0, "service": 2.0})
    found = passages(
        ranked("lexical", ("a", 7.0), ("b", 3.0), words=words),
        ranked("vector", ("a", 0.9)),
        texts={"a": "Rotate the keys of each service.", "b": "Rotate keys."},
    )
    assert seen(found)["a"] == Features(cosine=0.9, words=1.0, rank=1.0)
    assert seen(found)["b"] == Features(cosine=0.9, words=0.5, rank=0.5)


def test_the_name_that_a_query_asks_for_counts_by_its_rarity_and_takes_that_from_the_cosine():
    words = FoundWords(rare={"b"}, rarity=0.75, is_name=True)
    lists = ranked("lexical", ("a", 7.0), ("b", 3.0), words=words), ranked("vector", ("a", 0.8))
    found = list(seen(passages(*lists)).values())
    assert [(one.named, one.name) for one in found] == [(0.75, 0.0), (0.75, 0.75)]
    assert [one.cosine for one in found] == pytest.approx([0.2, 0.2])
    found = list(passages(*lists).values())
    for query in ("keys", "what does maxRetries do"):  # the relevance of the first passage
        judged, confidence = judge_relevance(found, query, find_made)
        assert confidence == judged[0].relevance
    words = FoundWords(rare={"b"}, rarity=0.75)  # a rare word that is no name
    found = passages(ranked("lexical", ("a", 7.0), ("b", 3.0), words=words))
    assert {(one.named, one.name) for one in seen(found).values()} == {(0.0, 0.0)}


@table("word, text, exact")
def test_another_form_of_a_keyword_counts_nearly_as_the_word_itself(word, text, exact):
    (features,) = seen(passages(ranked("lexical", ("a", 7.0)), texts={"a": text}), word).values()
    assert features.exact == exact


def test_one_or_two_keywords_are_judged_by_words_as_written_and_not_by_cosines():
    found = passages(
        ranked("lexical", ("a", 7.0), ("b", 3.0)),
        ranked("vector", ("a", 0.9), ("b", 0.8)),
        texts={"a": "All Keys rotate.", "b": "rotating a key"},
    )
    first, second = seen(found, "rotate keys").values()
    assert (first.cosine, first.keywords, first.exact) == (0.0, 1.0, 1.0)
    assert (second.cosine, second.keywords, second.exact) == (0.0, 1.0, 0.6)
    for question in ("rotate the keys", "rotate all api keys"):
        assert {one.keywords for one in seen(found, question).values()} == {0.0}


@pytest.mark.parametrize("fuse", [adaptive, rrf, relative_score])
@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_relevance_does_not_depend_on_how_the_legs_are_fused_and_weighed(fuse, weight):
    lists = (ranked("lexical", ("a", 7.0), weight=weight), ranked("vector", ("a", 0.9)))
    (hit,) = fuse(lists)
    passage = Passage(chunk("a", "keys"), hit.score, hit, frozenset({"lex", "vec"}))
    (features,) = extract_features([passage], LONG)
    assert (features.cosine, features.rank) == (0.9, 1.0)


def test_a_passage_of_the_lexical_leg_alone_has_the_cosine_of_the_last_vector_hit():
    found = passages(
        ranked("lexical", ("a", 7.0)), ranked("vector", ("b", 0.9), ("c", 0.6), ("d", 0.4))
    )
    assert seen(found)["a"].cosine == 0.4
    # also when that last hit is not among the passages
    assert seen({name: found[name] for name in ("a", "b")})["a"].cosine == 0.4


def test_an_expansion_does_not_change_what_is_seen():
    own = (ranked("lexical", ("a", 7.0)), ranked("vector", ("a", 0.8), ("b", 0.5)))
    expansions = (
        ranked("lexical", ("b", 40.0), ("c", 30.0), origin="expansion", weight=1.0),
        ranked("vector", ("c", 0.99), ("a", 0.97), ("d", 0.1), origin="expansion", weight=1.0),
    )
    plain, expanded = seen(passages(*own)), seen(passages(*own, *expansions))
    assert {name: expanded[name].cosine for name in plain} == {"a": 0.8, "b": 0.5}
    assert expanded["c"].cosine == 0.5


def test_relevance_never_rises_and_passages_that_contradict_the_order_share_their_mean():
    found = passages(
        ranked("vector", ("a", 0.9), ("b", 0.2), ("c", 0.4), ("d", 0.1)), heard=("vec",)
    )
    by_cosine = Calibration(0.0, cosine=1.0)
    judged, _ = judge_relevance(list(found.values()), LONG, lambda _: by_cosine)
    pair = (
        by_cosine.relevance(Features(cosine=0.2)) + by_cosine.relevance(Features(cosine=0.4))
    ) / 2
    assert [one.relevance for one in judged[1:3]] == [pytest.approx(pair)] * 2
    assert [one.relevance for one in judged] == sorted(
        (one.relevance for one in judged), reverse=True
    )


def test_certainty_says_exact_for_words_as_written_else_likely_from_a_half_on():
    found = passages(
        ranked("lexical", ("a", 7.0), ("b", 3.0)),
        texts={"a": "the keys", "b": "key"},
        heard=("lex",),
    )
    listed = list(found.values())
    surely, hardly = Calibration(1.0), Calibration(-1.0)
    for fit, other in ((surely, "likely"), (hardly, "possible")):
        judged, _ = judge_relevance(listed, "keys", lambda _, fit=fit: fit)
        assert [one.certainty for one in judged] == ["exact", other]
        quoted, _ = judge_relevance(listed, LONG, lambda _, fit=fit: fit, ["the  Keys"])
        assert [one.certainty for one in quoted] == ["exact", other]
        asked, _ = judge_relevance(listed, LONG, lambda _, fit=fit: fit)
        assert [one.certainty for one in asked] == [other, other]


def test_confidence_follows_the_best_cosine_and_words_of_a_question():
    # -4 + 10 * .5 + 2 * .25 = 1.5; 1 / (1 + e^-1.5) = .817574
    fit = Calibration(0.0, answer_constant=-4.0, answer_cosine=10.0, answer_words=2.0)
    words = FoundWords(weights={"rotate": 1.0, "keys": 1.0, "service": 2.0})
    lists = ranked("lexical", ("b", 3.0), words=words), ranked("vector", ("a", 0.5), ("b", 0.2))
    found = passages(*lists, texts={"a": "nothing", "b": "keys"})
    _, confidence = judge_relevance(list(found.values()), LONG, lambda _: fit)
    assert confidence == pytest.approx(0.817574, abs=1e-6)
    assert judge_relevance([], LONG, lambda _: fit) == ([], 0.0)


@pytest.mark.parametrize(
    ("heard", "fit"),
    [
        ({"lex", "vec"}, MADE), ({"vec"}, MADE), ({"lex"}, BY_WORDS), ({"hyde"}, BY_WORDS),
        ({"lex", "hyde"}, BY_WORDS), (set(), BY_WORDS),
    ],
)  # fmt: skip
def test_a_passage_without_a_cosine_that_was_fitted_is_judged_by_words(heard, fit):
    found = passages(ranked("lexical", ("a", 7.0)), heard=heard)
    [judged], _ = judge_relevance(list(found.values()), LONG, find_made)
    assert judged.relevance == fit.relevance(seen(found)["a"])


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        ("The keys are rotated when the service is restarted by its owner.", MADE),
        ("rotate_keys(x, y)", MADE),  # it does not show its language
        ("Optionと同様、Resultは多くのメソッドを持ちます。", BY_WORDS),
        ("Die Schlüssel werden gedreht, wenn der Dienst neu gestartet wird.", BY_WORDS),
    ],
)
def test_passages_in_another_language_are_judged_by_words_if_the_fit_is_of_english(text, fit):
    found = passages(ranked("vector", ("a", 0.9)), texts={"a": text})
    of_english = replace(MADE, english_only=True)
    [judged], _ = judge_relevance(
        list(found.values()), LONG, lambda with_cosine: of_english if with_cosine else BY_WORDS
    )
    assert judged.relevance == fit.relevance(seen(found)["a"])
    [judged], _ = judge_relevance(list(found.values()), LONG, find_made)
    assert judged.relevance == MADE.relevance(seen(found)["a"])


@pytest.fixture
def parts(tmp_path):
    with open_library(tmp_path / "home") as library:
        yield SearchParts(library)


def test_every_fusion_weight_and_engine_shares_the_calibration_of_the_model(parts):
    view = parts.with_settings({"fusion_mode": "rrf", "original_weight": 3.0})
    save_calibration(parts.database, "words-1", MADE)
    assert view.calibration(True) == MADE
    assert view.calibration(False) == packaged_calibration(WORDS_ONLY)
    assert packaged_calibration("words-2") is None  # a model without a fit is judged by words
    assert find_calibration(parts.database, "words-2") == packaged_calibration(WORDS_ONLY)


def test_a_kept_calibration_is_read_by_a_newly_opened_library(parts, tmp_path):
    save_calibration(parts.database, WORDS_ONLY, MADE)
    with open_library(tmp_path / "home") as opened:
        assert SearchParts(opened).calibration(False) == MADE
    again = replace(MADE, constant=7.0)
    save_calibration(parts.database, WORDS_ONLY, again)
    assert find_calibration(parts.database, WORDS_ONLY) == again
    save_calibration(parts.database, WORDS_ONLY, None)
    assert find_calibration(parts.database, WORDS_ONLY) == packaged_calibration(WORDS_ONLY)


def test_every_packaged_calibration_loads_and_belongs_to_a_model_of_its_own():
    text = files("catalog.retrieval").joinpath("calibrations.json").read_text(encoding="utf-8")
    models = []
    for one in json.loads(text):
        assert set(one) == {"embedding", "calibration"}
        made = asdict(Calibration(**one["calibration"]))
        assert made.pop("about").strip()
        assert all(map(math.isfinite, made.values())), one
        models.append(one["embedding"])
    assert WORDS_ONLY in models
    assert len(set(models)) == len(models)
