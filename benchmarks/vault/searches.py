"""Checks of what searches answer: ranking, recall, diversity, filters, scopes, evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from corpus import Corpus
from homes import DATASET, Held
from rows import Row, share
from temporal import Asked, Mean, video_of

from catalog.core.documents import Chunk
from catalog.core.results import TIMED_MODALITIES, SearchResult, SearchResults
from catalog.core.scope import Scope
from catalog.evaluation.backends import Backends
from catalog.evaluation.golden import GoldenSet
from catalog.evaluation.metrics import PRIMARY, RunScores, score_run
from catalog.evaluation.runs import run_backends
from catalog.library.library import Library
from catalog.retrieval.recordings import is_timed, seconds_around
from catalog.search_v2.service import SearchServiceV2
from catalog.store.lexical.fts import FtsEngine
from catalog.store.restriction import Restriction

LEGS = ("lexical", "vector", "v2")
MODE_OF = {"lexical": "lexical", "vector": "vector", "v2": "hybrid"}
AT_50K = "at 50,000 chunks: python benchmarks/speed.py --chunks 50000"
_DEPTH = 30


def scored(library: Library, golden: GoldenSet) -> dict[str, RunScores]:
    """Every query put to each leg and to hybrid; the clock runs at ten passages."""
    with Backends(library) as backends:
        loaded = [backends.load(name) for name in LEGS]
        runs = run_backends(loaded, golden, dataset=DATASET, top_k=_DEPTH, repeats=2)
    failed = {name: reason for run in runs for name, reason in run.errors.items()}
    if failed:
        raise SystemExit(f"{len(failed)} queries failed, the first: {next(iter(failed.items()))}")
    return {run.name: score_run(run, golden) for run in runs}


def exact_rows(scores: Mapping[str, RunScores], golden: GoldenSet) -> Iterator[Row]:
    """11.3: recall of exact terms, and the keyword leg's time."""
    asked = [query.id for query in golden if query.kind == "exact"]
    means = {
        name: Mean.of([one.per_query["R@10"][q] for q in asked]) for name, one in scores.items()
    }
    others = ", ".join(f"{MODE_OF[name]} {mean}" for name, mean in means.items() if name != "v2")
    yield Row.of(
        "exact-term recall@10", str(means["v2"]), ">= 0.95", means["v2"].value >= 0.95,
        f"hybrid; {others}",
    )  # fmt: skip
    yield _latency("query latency (keywords)", scores["lexical"], "p95 <= 200 ms at 50k")


def ranking_rows(
    scores: Mapping[str, RunScores], golden: GoldenSet, videos: Mapping[str, Sequence[Asked]]
) -> Iterator[Row]:
    """11.4: nDCG@10 of hybrid beside the better leg, and its time.

    ``videos``: the questions about moments with the video unknown, by mode.
    """
    groups = {"": [query.id for query in golden]}
    for kind in ("metadata", "semantic", "exact"):
        groups[kind] = [query.id for query in golden if query.kind == kind]
    by_leg = {
        name: {kind: [one.per_query[PRIMARY][q] for q in ids] for kind, ids in groups.items()}
        for name, one in scores.items()
    }
    for name, kinds in by_leg.items():
        kinds["temporal"] = [asked.ndcg for asked in videos[MODE_OF[name]]]
        kinds[""] = kinds[""] + kinds["temporal"]
    for kind in ("", "metadata", "semantic", "exact", "temporal"):
        lexical, vector, hybrid = (Mean.of(by_leg[name][kind]) for name in LEGS)
        best = max(lexical.value, vector.value)
        needed = best * 1.1
        told = f"lexical {lexical.value:.3f}, vector {vector.value:.3f}"
        row = Row.of(
            f"nDCG@10, {kind or 'all queries'}", f"{hybrid} {hybrid.value / best - 1:+.1%}",
            f">= {needed:.3f} (better leg + 10 %)", hybrid.value >= needed,
            told + ("; impossible: above 1" if needed > 1 else ""),
        )  # fmt: skip
        yield row if not kind else Row(row.metric, row.measured, row.target, "part of it", row.note)
    yield _latency("retrieval latency", scores["v2"], "p95 <= 1.5 s at 50k")


def answers(service: SearchServiceV2, golden: GoldenSet) -> list[SearchResults]:
    """Ten passages for every query, with no filter: what a person sees."""
    return [service.search(query.query, dataset=DATASET, top_k=10) for query in golden]


def diversity_row(found: Sequence[SearchResults], most: int) -> Row:
    """11.4: at most three passages of one document in an answer."""
    crowded = [max(Counter(one.path for one in results).values(), default=0) for results in found]
    within = sum(count <= most for count in crowded)
    return Row.of(
        "diversity policy", share(within, len(found)), f"max {most} chunks a document",
        within == len(found) and most == 3,
        "answers of ten passages with no scope; a search of one named document is not capped",
    )  # fmt: skip


def filter_row(service: SearchServiceV2, golden: GoldenSet, corpus: Corpus) -> Row:
    """11.4: with a file type, a tag or a part of the path, nothing else comes."""
    tags = {page.path: page.tags for page in corpus.pages}
    paths = sorted(corpus.texts())
    kinds = sorted({page.kind for page in corpus.pages})
    asked = wrong = empty = 0
    for number, query in enumerate(golden.queries[::3]):
        kind = kinds[number % len(kinds)]
        allowed = {
            f"file_type={kind}": [one for one in paths if one.endswith(f".{kind}")],
            "path~layers": [one for one in paths if "layers" in one],
            "title~layers": [one for one in paths if "layers" in one],
            "tags=build-with-claude": [p for p in paths if "build-with-claude" in tags.get(p, ())],
        }
        for filters, within in allowed.items():
            found = service.search(query.query, dataset=DATASET, filters=[filters])
            asked, empty = asked + 1, empty + (len(found) == 0)
            wrong += any(one.path not in within for one in found)
    return Row.of(
        "filter correctness", share(asked - wrong, asked), "100 % respect it",
        wrong == 0 and empty < asked / 2,
        f"by file type, path, title and tag; {empty} answers were empty",
    )  # fmt: skip


def scope_row(library: Library, service: SearchServiceV2) -> Row:
    """11.4: ``None`` is everything and ``[]`` is nothing, in every engine and every mode."""
    vector = service.parts.query_vectors.embed("a layer mask")[0]
    fts = FtsEngine(library.database, DATASET)
    kept = {}
    nothing: list[str] = []
    for ids in (None, nothing):
        within = Restriction(DATASET, Scope.from_doc_ids(ids))
        kept[ids is None] = {
            "bm25": len(library.indexes.lexical(DATASET).search("layer mask", 10, within)),
            "fts": len(fts.search("layer mask", 10, within)),
            "qdrant": len(library.indexes.vector(DATASET).search(vector, 10, within)),
            "exact": len(library.indexes.vector(DATASET, "flat").search(vector, 10, within)),
        } | {
            mode: len(service.search("layer mask", dataset=DATASET, mode=mode, doc_ids=ids))
            for mode in MODE_OF.values()
        }
    right = [name for name, count in kept[True].items() if count == 10 and kept[False][name] == 0]
    return Row.of(
        "filter semantics, None and []", share(len(right), len(kept[True])),
        "None all, [] none", len(right) == len(kept[True]), ", ".join(kept[True]),
    )  # fmt: skip


def evidence_rows(store: Held, asked: Sequence[Asked], corpus: Corpus) -> Iterator[Row]:
    """11.5: windows, order and anchors, of stored passages and of what searches answered."""
    results = [one for question in asked for one in question.results]
    yield _window_row(store, results, corpus)
    times = [[line.time_start for line in one.evidence.lines] for one in results if one.evidence]
    ordered = sum(starts == sorted(starts) for starts in times)
    yield Row.of("chronological order", share(ordered, len(times)), "100 %",
                 0 < len(times) == ordered, "bundles of evidence in answers")  # fmt: skip
    timed = [one for one in results if one.modality in TIMED_MODALITIES]
    whole = sum(
        one.evidence is not None
        and one.chunk_id in one.evidence.anchors
        and one.chunk_id in {line.chunk_id for line in one.evidence.lines}
        for one in timed
    )
    yield Row.of("evidence completeness", share(whole, len(timed)), "the anchor always",
                 0 < len(timed) == whole, "passages of videos in answers")  # fmt: skip


def _window_row(store: Held, results: Sequence[SearchResult], corpus: Corpus) -> Row:
    """Windows against the rule, worked out here from the corpus's times.

    Of every stored passage, and of every bundle in the answers that is of one passage.
    """
    ends = {video_of(video.path): video.end for video in corpus.videos}
    met = []
    for chunk in filter(is_timed, store.chunks):
        end = ends[video_of(chunk.path)]
        found = seconds_around(chunk, transcript_seconds=15.0, frame_seconds=10.0, media_end=end)
        met.append(found == _wanted(chunk, end))
    bundles = 0
    for one in results:
        if one.evidence is not None and len(one.evidence.anchors) == 1:
            wanted = _wanted(one, ends[video_of(one.path)])
            found = (one.evidence.start, one.evidence.end)
            met.append(all(abs(a - b) < 0.01 for a, b in zip(found, wanted, strict=True)))
            bundles += 1
    return Row.of("window correctness", share(sum(met), len(met)), "±15 s, frames ±10 s",
                  all(met) and bundles > 0,
                  f"every stored passage of a video, and {bundles} bundles in answers")  # fmt: skip


def _wanted(passage: Chunk | SearchResult, end: float) -> tuple[float, float]:
    first, last = passage.locator.time_start, passage.locator.time_end
    assert first is not None
    assert last is not None
    around = 10.0 if passage.modality == "video_frame" else 15.0
    return max(0.0, first - around), max(last, min(end, last + around))


def _latency(metric: str, scores: RunScores, target: str) -> Row:
    assert scores.latency is not None
    return Row(metric, f"p95 {scores.latency.p95:.0f} ms here", target, "elsewhere", AT_50K)
