"""Fit relevance and confidence, and judge them by kinds of queries and by collections.

    python benchmarks/relevance.py ../shared/data/anthropic-docs SETS/* --home HOME --svg FILE

Each folder is a collection in BEIR layout; what is not indexed in the home is indexed first. A
folder whose name ends in ``-s9`` or the like counts as the same family as the one without. From
each collection come these kinds of queries, at most 60 of a kind and 150 questions:

question        its own labelled queries
title           the title of a document
name            a rare token that looks like an identifier, alone
name-sentence   such a name in an everyday sentence
word, words     a word of one document, or of two to five
common-word     a word of more documents
two-words       two words of one sentence
other-question  questions of the other families: no passage answers
other-word      their words that the collection does not have

Each family is left out of the fit that it is judged by. Printed are, by kind, the expected
calibration error of the first ten passages and of the first, and how often a passage called likely
or possible was right, what thresholds of confidence refuse, and the coefficients.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from catalog.core.settings import load_settings
from catalog.ingest.sync_report import Silent
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.retrieval.query_words import looks_like_name
from catalog.retrieval.relevance import (
    FEATURES,
    LIKELY,
    Calibration,
    Features,
    extract_features,
)
from catalog.search_v2.nodes import ScoredPassage
from catalog.search_v2.service import SearchServiceV2
from catalog.store.chunks import read_documents
from catalog.store.lexical.languages import stop_words
from fusion import exact_queries
from question_sets import CORPUS, read_beir

SEED = 20261125
MOST, MOST_QUESTIONS, DEPTH = 60, 150, 10
THRESHOLDS = (0.2, 0.3, 0.4, 0.5)
SENTENCES = (
    "I get an error with {} in my program",
    "how do I use {} correctly",
    "what does {} mean",
    "please tell me about {}",
    "my colleague asked me yesterday what {} is good for",
    "is {} something we need to change",
    "where can I find more about {} in the documents",
    "the customer reports a problem with {} since last week",
)
Labelled = tuple[str, Mapping[str, int]]


@dataclass(frozen=True)
class LabelledPassage:
    """The grade of one passage's document, and the variables of its relevance."""

    grade: int
    features: Features


@dataclass(frozen=True)
class Asked:
    """One query: where it was asked, its kind, its text, and its first passages with labels."""

    collection: str
    kind: str
    text: str
    passages: list[LabelledPassage]

    @property
    def family(self) -> str:
        """The collection without the mark of its size."""
        return re.sub(r"-(s\d+|cut)$", "", self.collection)


def main() -> None:
    options = _arguments()
    settings = load_settings(overrides={"home": options.home}).settings
    with Library(settings) as library:
        service = SearchServiceV2(library)
        asked = [one for folder in options.folders for one in _ask_all(service, folder, options)]
    for has_cosines in (True, False):
        print(f"\n# {'hybrid, with cosines' if has_cosines else 'by words alone'}")
        judged = _judge(asked, has_cosines=has_cosines)
        _print_kinds(asked, judged)
        made = fit_calibration(_queries(asked), has_cosines=has_cosines, about=_about(asked))
        answers = _judge_answers(asked, has_cosines=has_cosines)
        fits = asdict(made) | {
            f"answer_{name}": getattr(answers, name) for name in ("constant", "cosine", "words")
        }
        print({name: round(v, 4) for name, v in fits.items() if isinstance(v, float)})
        if has_cosines and options.svg:
            options.svg.write_text(_draw(asked, judged), encoding="utf-8")


def fit_calibration(
    queries: Sequence[Sequence[LabelledPassage]], *, has_cosines: bool = True, about: str = ""
) -> Calibration:
    """Fit the calibration that makes the labels most likely: a logistic regression.

    Every query has the same weight. Newton's method with a ridge of 10⁻³, which matters only if
    labels are separable.
    """
    rows = [(passage, 1 / len(query)) for query in queries for passage in query]
    labels = np.array([float(passage.grade > 0) for passage, _ in rows])
    weights = np.array([share for _, share in rows])
    weights *= len(rows) / weights.sum()
    names = FEATURES if has_cosines else FEATURES[1:]
    values = np.array(
        [[*(getattr(passage.features, name) for name in names), 1.0] for passage, _ in rows]
    )
    solution, ridge = np.zeros(len(names) + 1), 1e-3 * np.eye(len(names) + 1)
    for _ in range(50):
        estimates = 1 / (1 + np.exp(-np.clip(values @ solution, -40, 40)))
        gradient = values.T @ (weights * (labels - estimates)) - ridge @ solution
        curvature = (values * (weights * estimates * (1 - estimates))[:, None]).T @ values + ridge
        step = np.linalg.solve(curvature, gradient)
        solution += step
        if np.abs(step).max() < 1e-8:
            break
    slopes = dict(zip(names, map(float, solution), strict=False))
    return Calibration(float(solution[-1]), about=about, **slopes)


def _ask_all(
    service: SearchServiceV2, folder: Path, options: argparse.Namespace
) -> Iterator[Asked]:
    name = folder.resolve().name
    Indexer(service.library).build(folder / CORPUS, name, progress=Silent())
    with service.library.database.read() as connection:
        documents = list(read_documents(connection, name))
    texts = {one.path: one.text for one in documents}
    titles = {one.path: one.title for one in documents if one.title != one.path}
    chance = random.Random(f"{SEED}{name}")
    golden = [
        (query.query, {path: grade for path, grade in query.relevant.items() if path in texts})
        for query in read_beir(folder, "test").answerable
    ]
    kinds = {
        "question": _some([one for one in golden if one[1]], chance, MOST_QUESTIONS),
        **_made_queries(texts, titles, chance),
        **_others(folder, options.folders, texts, chance),
    }
    for kind, queries in kinds.items():
        for text, grades in queries:
            nodes = service.retrieve(text, dataset=name, top_k=DEPTH, rerank=False, expand=False)
            passages = [node.passage for node in nodes if isinstance(node, ScoredPassage)]
            found = [
                LabelledPassage(grades.get(one.chunk.path, 0), seen)
                for one, seen in zip(passages, extract_features(passages, text), strict=True)
                if one.chunk.path != text
            ]
            yield Asked(name, kind, text, found)
    print(name, {kind: len(queries) for kind, queries in kinds.items()}, flush=True)


def _made_queries(
    texts: Mapping[str, str], titles: Mapping[str, str], chance: random.Random
) -> dict[str, list[Labelled]]:
    """Make titles, names and words of the documents into queries, without a look at results."""
    holding: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in texts.items():
        for word in set(re.findall(r"[^\W\d_]{3,}", f"{titles.get(path, '')} {text}")):
            holding[word.casefold()].add(path)
    words = {
        word: dict.fromkeys(paths, 1)
        for word, paths in sorted(holding.items())
        if word.isascii() and word not in stop_words("english")
    }
    by_title: defaultdict[str, list[str]] = defaultdict(list)
    for path, title in titles.items():
        by_title[title].append(path)
    names = [
        (token, grades)
        for token, grades in exact_queries(texts).items()
        if " " not in token and looks_like_name(token)
    ]
    single = [(token, grades) for token, grades in names if len(grades) == 1]
    many = max(6, len(texts) // 8)
    return {
        "title": _some([(t, {p[0]: 1}) for t, p in by_title.items() if len(p) == 1], chance),
        "name": _some(names, chance),
        "name-sentence": [
            (SENTENCES[at % len(SENTENCES)].format(token), grades)
            for at, (token, grades) in enumerate(_some(single, chance))
        ],
        "word": _some([one for one in words.items() if len(one[1]) == 1], chance),
        "words": _some([one for one in words.items() if 2 <= len(one[1]) <= 5], chance),
        "common-word": _some([one for one in words.items() if 6 <= len(one[1]) <= many], chance),
        "two-words": _some(_pairs(texts, words, chance), chance),
    }


def _pairs(
    texts: Mapping[str, str], words: Mapping[str, Mapping[str, int]], chance: random.Random
) -> list[Labelled]:
    pairs: dict[str, Mapping[str, int]] = {}
    paths = sorted(texts)
    for _ in range(400):
        sentence = chance.choice(re.split(r"[.!?\n]", texts[chance.choice(paths)]))
        known = {word.casefold() for word in re.findall(r"[^\W\d_]{4,}", sentence)}
        rare = [word for word in sorted(known & words.keys()) if len(words[word]) <= len(texts) / 4]
        if len(rare) >= 2:
            one, other = chance.sample(rare, 2)
            both = words[one].keys() & words[other].keys()
            if 0 < len(both) <= 4:
                pairs[f"{one} {other}"] = dict.fromkeys(both, 1)
    return list(pairs.items())


def _others(
    folder: Path, folders: Sequence[Path], texts: Mapping[str, str], chance: random.Random
) -> dict[str, list[Labelled]]:
    """Take questions and words of other families, which this collection does not answer."""
    family = folder.resolve().name.partition("-")[0]
    others = sorted(
        query.query
        for other in folders
        if not other.resolve().name.startswith(family)
        for query in read_beir(other, "test").answerable
        if len(query.query) < 150
    )
    words = {word.casefold() for text in others for word in re.findall(r"[^\W\d_]{5,}", text)}
    held = {word.casefold() for text in texts.values() for word in re.findall(r"[^\W\d_]+", text)}
    return {
        "other-question": [(text, {}) for text in chance.sample(others, min(40, len(others)))],
        "other-word": _some([(word, {}) for word in sorted(words - held)], chance, 40),
    }


def _some(queries: list[Labelled], chance: random.Random, most: int = MOST) -> list[Labelled]:
    return chance.sample(queries, min(most, len(queries)))


def _queries(asked: Sequence[Asked]) -> list[list[LabelledPassage]]:
    return [one.passages for one in asked if one.passages]


def _answers(asked: Sequence[Asked]) -> list[list[LabelledPassage]]:
    """Return what confidence is fitted on: for each question, its best cosine and words."""
    rows = []
    for one in asked:
        seen = [passage.features for passage in one.passages]
        grade = max((passage.grade for passage in one.passages), default=0)
        is_question = one.kind == "other-question" or (one.kind == "question" and grade > 0)
        if is_question and seen and not seen[0].keywords and not seen[0].named:
            best = Features(
                cosine=max(each.cosine for each in seen), words=max(each.words for each in seen[:3])
            )
            rows.append([LabelledPassage(grade, best)])
    return rows


def _judge(asked: Sequence[Asked], *, has_cosines: bool) -> list[list[float]]:
    """Return the relevance of each passage by a fit that saw no query of its family."""
    judged: list[list[float]] = [[] for _ in asked]
    for family in sorted({one.family for one in asked}):
        others = _queries([one for one in asked if one.family != family])
        made = fit_calibration(others, has_cosines=has_cosines)
        for at, one in enumerate(asked):
            if one.family == family:
                judged[at] = [made.relevance(seen.features) for seen in one.passages]
    return judged


def _judge_answers(asked: Sequence[Asked], *, has_cosines: bool) -> Calibration:
    """Print what thresholds of confidence refuse, each family left out; return the fit to all."""
    told: list[tuple[float, bool]] = []
    for family in sorted({one.family for one in asked}):
        rest = _answers([one for one in asked if one.family != family])
        made = fit_calibration(rest, has_cosines=has_cosines)
        own = _answers([one for one in asked if one.family == family])
        told += [(made.relevance(one.features), one.grade > 0) for [one] in own]
    for least in THRESHOLDS:
        shares = [
            np.mean([value < least for value, right in told if right == kind])
            for kind in (True, False)
        ]
        print(f"confidence below {least}: {shares[0]:.3f} of answerable, {shares[1]:.3f} of others")
    return fit_calibration(_answers(asked), has_cosines=has_cosines)


def _print_kinds(asked: Sequence[Asked], judged: Sequence[Sequence[float]]) -> None:
    print("kind             passages   error  first   likely, right   possible, right")
    for kind in dict.fromkeys(one.kind for one in asked):
        chosen = [(one.passages, told) for one, told in zip(asked, judged, strict=True)
                  if one.kind == kind]  # fmt: skip
        estimates = np.array([value for _, told in chosen for value in told])
        right = np.array([seen.grade > 0 for passages, _ in chosen for seen in passages])
        first = np.array([told[0] for _, told in chosen if told])
        first_right = np.array([passages[0].grade > 0 for passages, _ in chosen if passages])
        likely = estimates >= LIKELY
        parts = [
            f"{int(some.sum()):6} {right[some].mean() if some.any() else float('nan'):7.2f}"
            for some in (likely, ~likely)
        ]
        print(
            f"{kind:16} {len(right):8} {_error(estimates, right):7.3f} "
            f"{_error(first, first_right):6.3f}   {'   '.join(parts)}"
        )


def _error(estimates: np.ndarray, right: np.ndarray) -> float:
    """Compute the expected calibration error over ten bins."""
    bins = np.minimum((estimates * 10).astype(int), 9)
    return float(
        sum(
            abs(estimates[bins == n].mean() - right[bins == n].mean()) * (bins == n).mean()
            for n in np.unique(bins)
        )
    )


def _about(asked: Sequence[Asked]) -> str:
    return f"{', '.join(dict.fromkeys(one.collection for one in asked))}; {len(asked)} queries"


def _draw(asked: Sequence[Asked], judged: Sequence[Sequence[float]]) -> str:
    """Draw a reliability diagram for each kind: share of right passages by estimate."""
    kinds = list(dict.fromkeys(one.kind for one in asked))
    size, gap, columns = 120, 34, 4
    height = (len(kinds) + columns - 1) // columns * (size + gap + 10) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * (size + gap) + gap}" '
        f'height="{height}" font-family="sans-serif" font-size="11">'
    ]
    for at, kind in enumerate(kinds):
        left = gap + at % columns * (size + gap)
        top = 20 + at // columns * (size + gap + 10)
        parts.append(
            f'<text x="{left}" y="{top - 5}">{kind}</text>'
            f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="none" stroke="#999"/>'
            f'<path d="M{left} {top + size}l{size} -{size}" stroke="#ccc"/>'
        )
        pairs = [
            (value, seen.grade > 0)
            for one, told in zip(asked, judged, strict=True)
            if one.kind == kind
            for value, seen in zip(told, one.passages, strict=True)
        ]
        for n in range(10):
            of_bin = [(value, right) for value, right in pairs if min(int(value * 10), 9) == n]
            if of_bin:
                mean = sum(value for value, _ in of_bin) / len(of_bin)
                share = sum(right for _, right in of_bin) / len(of_bin)
                radius = 1.5 + 2 * np.log10(len(of_bin))
                parts.append(
                    f'<circle cx="{left + mean * size:.1f}" cy="{top + size - share * size:.1f}" '
                    f'r="{radius:.1f}" fill="#36c" fill-opacity=".7"/>'
                )
    return "".join([*parts, "</svg>\n"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--home", required=True)
    parser.add_argument("--svg", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
