"""Choose settings of the search by labelled questions, and adopt them only if a gain is shown.

Each engine is asked once for each question, deep; the search itself then tries every setting over
these lists. Groups of settings are tried one after the other, each on top of the best so far. The
gain is measured by cross-validation: settings chosen on half of the questions answer the others,
both ways and for several splits. With ten folds instead, the test found gains by chance twice as
often as it may (``docs/evidence/decisions.md``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from catalog import __version__
from catalog.core.errors import (
    BlindComparisonError,
    CatalogError,
    InputError,
    StageFailedError,
    StoreBusyError,
)
from catalog.core.params import SearchParams
from catalog.core.settings.loading import flatten, load_preset
from catalog.core.text import counted
from catalog.core.user_search import Ranking, to_ranking
from catalog.evaluation.backends import SearchBackend, V2Backend, code_digest
from catalog.evaluation.comparison import Outcome, PipelineComparison, compare_runs, decide_outcome
from catalog.evaluation.golden import GoldenQuery, GoldenSet, find_label_warnings, with_own_names
from catalog.evaluation.measurement import Measurement
from catalog.evaluation.metrics import PRIMARY, Timing, score_run, timing
from catalog.evaluation.report import render_report
from catalog.evaluation.report_text import format_ms
from catalog.evaluation.run_records import corpus_digest
from catalog.evaluation.runs import BackendRun, run_backends
from catalog.evaluation.significance import MIN_QUERIES, Floats, PairedTest, paired_test, power_of
from catalog.ingest.sync_report import Progress, Silent
from catalog.retrieval.parts import QueryVectors, SearchParts
from catalog.retrieval.search import Searcher, find_passages
from catalog.store.engines import LexicalEngine, RankedVectors, VectorEngine
from catalog.store.restriction import Hits

Setting = tuple[tuple[str, Any], ...]
"""Changes to the current settings of ``rag_v2``, by name; ``()`` is the current search."""
Score = Callable[[Setting], Floats]
Groups = Mapping[str, Sequence[Mapping[str, Any]]]
_Asked = TypeVar("_Asked")


def _fusions(mode: str, *vector_weights: float, **constants: float) -> list[Mapping[str, Any]]:
    weights = [{"lexical_weight": 1.0, "vector_weight": weight} for weight in vector_weights]
    return [{"fusion_mode": mode, **one, **constants} for one in weights]


RERANKED = (3, 10, 20)  # passages that a reranker reads
_BONUSES = {"bonus_first": 0.0, "bonus_second": 0.0}
GROUPS: Groups = {
    "fusion": (
        *_fusions("adaptive", 1.0, 0.5, 2.0, 4.0, 0.0),  # 0: words only
        {"fusion_mode": "adaptive", "lexical_weight": 0.0, "vector_weight": 1.0},  # meaning only
        *_fusions("relative_score", 1.0, 0.5, 2.0, 4.0),
        *_fusions("rrf", 1.0, rrf_k=60, bonus_first=0.05, bonus_second=0.02),
        *_fusions("rrf", 1.0, 0.5, 2.0, rrf_k=60, **_BONUSES),
        *_fusions("rrf", 1.0, 0.5, 2.0, rrf_k=10, **_BONUSES),
    ),
    "words": [
        {"bm25_k1": k1, "bm25_b": b}
        for k1, b in ((0.6, 0.75), (1.8, 0.75), (1.2, 0.3), (1.2, 0.9), (0.6, 0.3))
    ],
    "depth": [{"fts_top_k": depth, "vector_top_k": depth} for depth in (5, 20, 100)],
    "limit": [{"max_chunks_per_doc": limit} for limit in (1, 3, 0)],
    "rerank": [
        {"rerank_enabled": False},
        *(
            {"rerank_enabled": True, "rerank_candidates": count, "rerank_weight": weight}
            for count in RERANKED
            for weight in (0.3, 0.6)
        ),
    ],
}
SPLITS = 10  # of the questions, into halves
DEEPEST = 1_000  # hits of a list that is kept
SLOWER_BY = 1.5
TIMED = 40  # questions that real searches answer again, for the times
NO_CACHE = {"query_cache_size": 0, "cache_ttl_seconds": 0}
_FURTHER = 0.1  # of the passages that are reranked are new if other settings are the base
_ONLY = {"lexical_weight": "meaning only", "vector_weight": "words only"}
_OF_FUSION = frozenset(("fusion_mode", "lexical_weight", "vector_weight", "rrf_k", *_BONUSES))


class RecordedParts(SearchParts):
    """Parts under other settings whose engines and embedding model are asked once.

    Parts that are made from such parts share the answers. A list is taken to be the beginning of a
    longer one. That is true of exact engines; an approximate one may find other passages when it is
    asked for fewer.
    """

    def __init__(self, parts: SearchParts, setting: Setting = ()) -> None:
        settings = parts.with_settings(dict(setting)).settings
        super().__init__(parts.library, settings, make_reranker=lambda: parts.reranker)
        self._lists = dict[Hashable, tuple[int, Hits]]()
        vectors = QueryVectors(parts.library.model, 1 << 30)
        if isinstance(parts, RecordedParts):
            self._lists, vectors = parts._lists, parts.query_vectors
        vars(self).update(query_vectors=vectors)

    def lexical(self, dataset: Any) -> LexicalEngine:
        """Return the engine with a search that answers from the lists."""
        engine = super().lexical(dataset)

        def search(text: str, k: int, restriction: Any) -> Hits:
            how = engine.name, self.rag.bm25_k1, self.rag.bm25_b
            key = how, text, restriction, repr(restriction.filter)  # 1 equals True
            return self._first(key, k, lambda depth: engine.search(text, depth, restriction))

        return _with(engine, search=search)

    def vector(self, dataset: str) -> VectorEngine:
        """Return the engine whose rankings answer from the lists."""
        engine = super().vector(dataset)

        def at(connection: Any) -> RankedVectors:
            ranked = engine.at(connection)

            def rank(vector: Any, k: int, allowed: Any = None) -> Hits:
                among = None if allowed is None else allowed.tobytes()
                key = engine.name, dataset, vector.tobytes(), among
                return self._first(key, k, lambda depth: ranked.rank(vector, depth, allowed))

            return _with(ranked, rank=rank)

        return _with(engine, at=at)

    def _first(self, key: Hashable, k: int, search: Callable[[int], Hits]) -> Hits:
        depth, hits = self._lists.get(key, (0, Hits()))
        if depth < k and len(hits) == depth:
            depth = max(k, DEEPEST)
            self._lists[key] = depth, (hits := search(depth))
        return Hits(hits[:k], hits.spread, hits.fallback, hits.size)


def _with(engine: _Asked, **methods: Callable[..., Any]) -> _Asked:
    """Return a copy of the engine with these methods; its kind and state stay."""
    recorded = copy(engine)
    vars(recorded).update(methods)
    return recorded


class OrderOnly(V2Backend):
    """The search up to the order of its passages, without their snippets: half of its time."""

    prepare = SearchBackend.prepare  # recorded lists need no search to warm up

    def search(self, query: GoldenQuery, *, dataset: str, top_k: int) -> Ranking:
        """Search like ``V2Backend``."""
        params = SearchParams(query.query, dataset=dataset, top_k=top_k, filters=query.filters)
        found = find_passages(self.service.parts, params)
        if failed := [one for one in found.stages.reports if one.status == "failed"]:
            raise StageFailedError(f"stage {failed[0].name} failed: {failed[0].note}")
        hits = [
            {"path": one.chunk.path, "score": one.score, "also_in": list(one.copies)}
            for one in found.passages
        ]
        return to_ranking(hits, dataset, top_k)


def choose(score: Score, groups: Groups, among: npt.NDArray[np.intp]) -> Setting:
    """Return the setting with the best mean over the questions ``among``, group by group.

    Of equal ones the earlier wins, so the current settings win ties.
    """
    best: Setting = ()
    for options in groups.values():
        tried = [best, *(tuple(sorted({**dict(best), **one}.items())) for one in options)]
        means = {one: round(float(score(one)[among].mean()), 9) for one in dict.fromkeys(tried)}
        best = max(means, key=means.__getitem__)
    return best


def halves(count: int) -> Iterator[list[npt.NDArray[np.intp]]]:
    """Yield both halves of :data:`SPLITS` random splits of the questions, in either order."""
    generator = np.random.default_rng(0)
    for _ in range(SPLITS):
        split = np.array_split(generator.permutation(count), 2)
        yield from (split, split[::-1])


def cross_validate(score: Score, groups: Groups, count: int) -> Floats:
    """Return by question the mean score of the settings chosen on halves without it."""
    total = np.zeros(count)
    for here, there in halves(count):
        total[there] += score(choose(score, groups, here))[there]
    return total / SPLITS


class _Part:
    """The progress of one setting's questions, as a part of a longer work."""

    start = Silent.start

    def __init__(self, whole: Progress, size: float) -> None:
        self._whole, self._size = whole, size

    def advance(self, amount: float, label: str, counts: str = "") -> None:
        """Add the questions to the whole."""
        self._whole.advance(amount * self._size, label, counts)


class Tried(NamedTuple):
    """A setting with its mean score over all questions, and the times of real searches."""

    setting: Setting
    mean: float
    times: Timing


@dataclass(frozen=True)
class Tuning:
    """What was chosen, what it gains on questions left out, and whether to adopt it.

    ``gain`` tests the settings chosen without a question against the current ones; about ``needed``
    more questions could show it (0: none is seen). ``comparison`` is of the chosen setting on all
    questions. ``tried`` has the current setting, the chosen one, then the best of each kind, out of
    ``count``; ``corpus`` is a hash of the documents.
    """

    gain: PairedTest
    needed: int
    comparison: PipelineComparison
    tried: Sequence[Tried]
    limit_ms: float
    count: int
    corpus: str

    @property
    def chosen(self) -> Setting:
        """The best setting on all questions."""
        return self.tried[1].setting

    @property
    def is_shown(self) -> bool:
        """Whether a gain is shown on questions left out."""
        return decide_outcome(self.gain) == "better"

    @property
    def is_adopted(self) -> bool:
        """Whether to change the settings: a gain is shown, and p95 keeps the budget."""
        is_fast = self.tried[1].times.p95 <= self.limit_ms
        return bool(self.chosen) and self.is_shown and is_fast


class Trial:
    """Answerable questions to try settings on, over recorded lists and by real searches.

    Searches show what they usually show, but at least the ten of the deciding metric.
    """

    def __init__(
        self, service: Searcher, golden: GoldenSet, dataset: str, progress: Progress | None = None
    ) -> None:
        self.rag = service.parts.rag
        self.progress: Progress = progress or Silent()
        self.golden, self.dataset = GoldenSet(golden.name, golden.answerable), dataset
        self._service, self._parts = service, RecordedParts(service.parts)
        self.scores: dict[Setting, Floats] = {}
        self.times: dict[int, Timing] = {}  # by the number of passages that are reranked
        job = Measurement(service.library, dataset, golden)
        self._names: Any = {**job.names, "allowed": job.allowed}

    def normal(self, setting: Setting) -> Setting:
        """Return only what differs from the current settings."""
        return tuple((name, value) for name, value in setting if getattr(self.rag, name) != value)

    def score(self, setting: Setting, progress: Progress | None = None) -> Floats:
        """Return the deciding metric by question; a setting is tried once."""
        setting = self.normal(setting)
        if setting not in self.scores:
            run = self.ask(setting, OrderOnly, progress)
            values = score_run(run, self.golden).per_query[PRIMARY]
            self.scores[setting] = np.array([values[query.id] for query in self.golden])
        if progress is None:
            self.progress.advance(1, name_setting(setting), f"{len(self.scores)} settings")
        return self.scores[setting]

    def rerank(self, bases: Collection[Setting], options: Sequence[Mapping[str, Any]]) -> None:
        """Try the rerankers on top of each base; the largest fills the cache for the others."""
        most = sorted(options, key=lambda option: -option.get("rerank_candidates", 0))
        size, further = 1.0, _FURTHER * (len(bases) - 1)
        self.progress.start((1 + further) * len(self.golden), "reranking")
        for base in bases:
            part: Progress = _Part(self.progress, size)
            for option in most:
                self.score(tuple(sorted({**dict(base), **option}.items())), part)
                part, size = Silent(), _FURTHER

    def ask(
        self, setting: Setting, kind: type[V2Backend] = V2Backend, progress: Progress | None = None
    ) -> BackendRun:
        """Ask all questions over the recorded lists; the first time asks the engines."""
        searcher = Searcher(self._service.library, RecordedParts(self._parts, setting))
        return self._ask([kind(name_setting(setting), searcher, "hybrid")], progress=progress)[0]

    def measure(self, settings: Sequence[Setting], count: int) -> list[BackendRun]:
        """Ask ``count`` of the questions once in real searches under each setting, in turn."""
        searchers = [self._service.with_settings(dict(one) | NO_CACHE) for one in settings]
        names = map(name_setting, settings)
        backends = [V2Backend(*one, "hybrid") for one in zip(names, searchers, strict=True)]
        some = self.golden.queries[:: max(1, len(self.golden) // count)][:count]
        options = {"time_all": True, "progress": self.progress}
        return self._ask(backends, GoldenSet(self.golden.name, some), **options)

    def _ask(
        self, backends: Sequence[V2Backend], golden: GoldenSet | None = None, **options: Any
    ) -> list[BackendRun]:
        options = {"top_k": max(self.rag.top_k, 10), "repeats": 0} | options | self._names
        return run_backends(backends, golden or self.golden, dataset=self.dataset, **options)

    def affordable(self, groups: Groups, limit: Callable[[Timing], float]) -> tuple[Groups, str]:
        """Leave out rerankers that are missing or too slow, and say so; larger ones are slower."""
        options, kept, note = groups["rerank"], [0], ""
        for count in sorted({one.get("rerank_candidates", 0) for one in options}.difference([0])):
            setting = (("rerank_candidates", count), ("rerank_enabled", True))
            try:
                now, then = map(times_of, self.measure([(), setting], TIMED // 4))
            except CatalogError as error:
                note = f"reranking was not tried: {error}"
                break
            if then.p95 > limit(now):
                told = f"p95 {format_ms(then.p95)}, at most {format_ms(limit(now))}"
                note = f"reranking {count} passages or more was not tried: {told}"
                break
            kept.append(count)
            self.times[count] = then
        left = [one for one in options if one.get("rerank_candidates", 0) in kept]
        return {**groups, "rerank": left}, note

    def best_of_each(self) -> list[Setting]:
        """Return the best setting tried of each way to fuse, and of each number reranked."""
        best: dict[object, Setting] = {}
        for one in sorted(self.scores, key=lambda setting: self.scores[setting].mean()):
            names = ("fusion_mode", "rerank_enabled", "rerank_candidates")
            kind = (dict(one).get(name) for name in names)
            best[*kind, *(dict(one).get(name) == 0 for name in _ONLY)] = one
        return list(best.values())


def tune(
    service: Searcher,
    golden: GoldenSet,
    dataset: str,
    *,
    budget_ms: float | None = None,
    slower_by: float = SLOWER_BY,
    keep: Sequence[str] = (),
    groups: Groups = GROUPS,
    progress: Progress | None = None,
) -> Tuning:
    """Choose settings for labelled questions, and say whether to adopt them.

    p95 may be ``budget_ms``, or ``slower_by`` times the current one; ``keep`` names settings that
    stay. Raises :class:`BlindComparisonError` with fewer than 25 answerable questions, or if a
    search fails on all, :class:`InputError` for an unknown name, and :class:`StoreBusyError` if the
    dataset changes meanwhile.
    """
    if (missing := MIN_QUERIES - len(golden.answerable)) > 0:
        raise BlindComparisonError(
            f"{golden.name} has {counted(len(golden.answerable), 'answerable question')}, and "
            f"{MIN_QUERIES} are the fewest that decide: label {missing} more"
        )
    known = {name for group in groups.values() for option in group for name in option}
    if unknown := [name for name in keep if name not in known]:
        raise InputError(f"{unknown[0]!r} is not tried; tried are {', '.join(sorted(known))}")
    tried: Groups = {
        name: [one for one in group if set(one).isdisjoint(keep)] for name, group in groups.items()
    }

    def limit(now: Timing) -> float:
        return now.p95 * slower_by if budget_ms is None else budget_ms

    database = service.library.database
    golden = with_own_names(golden, database, dataset)
    corpus, trial = corpus_digest(database, dataset), Trial(service, golden, dataset, progress)
    trial.score((), trial.progress)
    tried, note = trial.affordable(tried, limit)
    plain, n = {**tried, "rerank": ()}, len(trial.golden)
    looks, is_reranked = sum(len(group) + 1 for group in plain.values()), len(tried["rerank"]) > 1
    trial.progress.start(looks, "trying settings", then="choosing on halves of the questions")
    bases = [choose(trial.score, plain, np.arange(n))]
    follows = "reranking" if is_reranked else ""
    trial.progress.start(2 * SPLITS * looks, "choosing on halves of the questions", then=follows)
    bases += [choose(trial.score, plain, half) for half, _ in halves(n)]
    if is_reranked:
        trial.rerank(dict.fromkeys(map(trial.normal, bases)), tried["rerank"])
    score = partial(trial.score, progress=Silent())
    chosen = trial.normal(choose(score, tried, np.arange(n)))
    left_out = cross_validate(score, tried, n)
    recorded = [trial.ask(one) for one in ((), chosen)]
    shown: list[Setting] = [(), chosen]
    others = [one for one in trial.best_of_each() if one not in shown]
    shown += [one for one in others if "rerank_candidates" not in dict(one)]
    runs = trial.measure(shown, TIMED)
    times = [*map(times_of, runs)]
    for one in others:  # a reranker takes long: it was timed before
        if one not in shown and (then := trial.times.get(dict(one)["rerank_candidates"])):
            shown.append(one)
            times.append(then)
    notes = [note] if note else []
    for kept, run in zip(recorded, runs, strict=False):
        if moved := [one for one in run.outcomes if run.documents(one) != kept.documents(one)]:
            notes.append(
                f"{run.name}: the search ranked {len(moved)} of {len(run.outcomes)} questions "
                f"otherwise than over the recorded lists, first {moved[0]}"
            )
    before, after = map(_with_times, recorded, runs[:2])
    comparison = compare_runs(
        before,
        replace(after, name=name_setting(chosen)),
        trial.golden,
        warnings=[*find_label_warnings(golden, database, dataset), *notes],
    )
    if corpus_digest(database, dataset) != corpus:
        raise StoreBusyError(f"{dataset!r} changed meanwhile: tune again after updates")
    gain, needed = paired_test(trial.score(()), left_out), 0
    if gain.difference > 0 and decide_outcome(gain) != "better":
        power = power_of(left_out - trial.score(()), [gain.difference])
        needed = max(1, power.needed[gain.difference][0] - n)
    means = (float(trial.score(one).mean()) for one in shown)
    return Tuning(
        gain,
        needed,
        comparison,
        [Tried(*one) for one in zip(shown, means, times, strict=True)],
        limit(times[0]),
        len(trial.scores),
        corpus,
    )


def times_of(run: BackendRun) -> Timing:
    """Return the times of a run; raise :class:`BlindComparisonError` if all its searches failed."""
    times = timing(ms for outcome in run.outcomes.values() for ms in outcome.ms)
    if times is None:
        raise BlindComparisonError(f"{run.name}: {next(iter(run.errors.values()))}")
    return times


def _with_times(run: BackendRun, timed: BackendRun) -> BackendRun:
    outcomes = dict(run.outcomes)
    for query, one in timed.outcomes.items():
        outcomes[query] = replace(outcomes[query], ms=one.ms, stages_ms=one.stages_ms)
    return replace(run, outcomes=outcomes)


def name_setting(setting: Setting) -> str:
    """Return ``as set``, ``meaning only``, ``words only`` or the changes."""
    only = [told for name, told in _ONLY.items() if dict(setting).get(name) == 0]
    changes = (f"{name}={value}" for name, value in setting if not only or name not in _OF_FUSION)
    return ", ".join([*only, *changes]) or "as set"


def tuning_verdict(tuning: Tuning) -> str:
    """Return what to do, and the numbers that it rests on."""
    gain, (now, then, *_) = tuning.gain, tuning.tried
    name, p95 = name_setting(then.setting), f"p95 {format_ms(then.times.p95)}"
    size = (
        f"{PRIMARY} {gain.difference:+.3f} [{gain.interval.low:+.3f}, {gain.interval.high:+.3f}] "
        f"on questions left out, n = {gain.n}; {p95}, now {format_ms(now.times.p95)}"
    )
    if tuning.is_adopted:
        return f"Adopt {name}: {size}."
    if not then.setting:
        return f"Keep what you have, nothing is better on all questions: {size}."
    if tuning.is_shown:
        return f"Keep what you have, {name} takes over {format_ms(tuning.limit_ms)}: {size}."
    more = (
        f"; about {tuning.needed:,} more labelled questions could decide" if tuning.needed else ""
    )
    told = f"no gain of {name} is shown"
    if decide_outcome(gain) == "worse":
        told = f"settings that are chosen so, such as {name}, are worse on other questions"
    return f"Keep what you have, {told}: {size}{more}."


def render_tuning(tuning: Tuning, *, created: datetime) -> str:
    """Return the page: the verdict, quality by time, and both searches on all questions."""
    outcome: Outcome = "better" if tuning.is_adopted else "no difference"
    judged = replace(tuning.comparison, verdict=tuning_verdict(tuning), outcome=outcome)
    trade = [(name_setting(one), mean, times.p95) for one, mean, times in tuning.tried]
    return render_report(judged, created=created, trade=trade)


def tuning_lines(tuning: Tuning) -> Iterator[str]:
    """Yield the verdict, warnings, and quality and times of the best settings."""
    yield tuning_verdict(tuning)
    yield from (f"! {warning}" for warning in tuning.comparison.warnings)
    yield f"\n {PRIMARY}   p50 ms   p95 ms  of {counted(tuning.count, 'setting')}, all questions"
    for place, (setting, mean, times) in enumerate(tuning.tried):
        mark = ("  (now)", "  (chosen)", "")[min(place, 2)]
        yield f"{mean:8.3f}{times.p50:9.1f}{times.p95:9.1f}  {name_setting(setting)}{mark}"


def tuning_dict(tuning: Tuning) -> dict[str, Any]:
    """Return the same as data, with the certificate: labels, documents, gain, interval, times."""
    compared, gain = tuning.comparison, tuning.gain
    return {
        "adopted": tuning.is_adopted,
        "verdict": tuning_verdict(tuning),
        "chosen": dict(tuning.chosen),
        "certificate": {
            "version": __version__,
            "code": code_digest()[:16],
            "dataset": compared.baseline.dataset,
            "documents": tuning.corpus,
            "golden": compared.golden.name,
            "labels": compared.golden.digest,
            "n": gain.n,
            "metric": PRIMARY,
            "gain": round(gain.difference, 4),
            "interval": [round(gain.interval.low, 4), round(gain.interval.high, 4)],
            "p95_ms": [round(one.times.p95, 1) for one in tuning.tried[:2]],
        },
        "needed": tuning.needed,
        "limit_ms": tuning.limit_ms,
        "warnings": list(compared.warnings),
        "tried": [
            {"setting": dict(setting), "mean": mean, "p50_ms": times.p50, "p95_ms": times.p95}
            for setting, mean, times in tuning.tried
        ],
    }


def preset_text(tuning: Tuning, preset: str | None) -> str:
    """Return the chosen settings as a preset on top of the ``preset`` in use.

    The certificate is a comment. Raises :class:`InputError` for a preset with agents, whose file
    needs the settings written by hand.
    """
    sections = {} if preset is None else load_preset(preset)
    if "agents" in sections:
        raise InputError(f"preset {preset} has agents: write the settings into its file")
    sections["rag_v2"] = {**sections.get("rag_v2", {}), **dict(tuning.chosen)}
    told = tuning_dict(tuning)["certificate"].items()
    lines = ["# Chosen by 'catalog tune'. What it rests on:"]
    lines += [f"# {name} = {json.dumps(value)}" for name, value in told]
    for section, own in sections.items():
        lines += [f"[{section}]", *(f"{name} = {json.dumps(it)}" for name, it in flatten(own))]
    return "\n".join(lines) + "\n"
