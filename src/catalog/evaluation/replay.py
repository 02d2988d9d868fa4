"""Ask questions again after a change: what moved, what was lost, and may the change be kept?

A *replay* compares the lists of two moments or of two homes. Its verdict is ``FAIL`` if labels show
a loss, ``HOLD`` if the lists moved more than a limit and no labels decide, and ``PASS`` otherwise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from catalog import __version__
from catalog.core.errors import BlindComparisonError, GoldenSetError, InputError
from catalog.core.text import counted
from catalog.core.user_search import RankedHit, Ranking
from catalog.evaluation.comparison import PipelineComparison, compare_runs
from catalog.evaluation.golden import Drift, GoldenQuery, GoldenSet, find_drift
from catalog.evaluation.golden_files import read_golden, read_lines, write_whole
from catalog.evaluation.measurement import Measurement
from catalog.evaluation.metrics import PRIMARY, SHOWN, SPAN_METRICS, count_span_hits, has_spans
from catalog.evaluation.report_text import shorten
from catalog.evaluation.run_records import changed_settings, corpus_digest
from catalog.evaluation.runs import DEFAULT_TOP_K, Allowed, BackendRun, QueryOutcome
from catalog.evaluation.significance import MIN_QUERIES, Floats, LossBounds, bound_losses
from catalog.evaluation.summary import comparison_dict
from catalog.store import Database
from catalog.store.log_entries import LogEntry, read_entries

if TYPE_CHECKING:
    from catalog.library.library import Library

Verdict = Literal["PASS", "FAIL", "HOLD"]
EXIT_CODES: Mapping[Verdict, int] = {"PASS": 0, "FAIL": 3, "HOLD": 4}
PERSISTENCE = 0.9
"""Of rank-biased overlap: the first ten ranks have 86 % of the weight (Webber et al. 2010)."""
MOST_MOVED = 0.1
MARGIN = 0.05
LOSS_LEVEL = 0.005  # half of one alarm in 100, so that chance keeps the rate below that
_QUOTED = 3  # first hits of which a file keeps words
_QUOTED_CHARS = 200
_NAMED = 10
_DEEPEST = 1_000  # documents of a list
_FORM = 1


def rank_biased_overlap(
    first: Sequence[Iterable[str]], second: Sequence[Iterable[str]], p: float = PERSISTENCE
) -> float:
    """Compute the extrapolated rank-biased overlap of two rankings: 1 for equal ones, 0 for none.

    A ranking is a sequence of groups, best first; names of a group are tied. With l the length of
    the longer ranking, and A(d) their agreement at depth d,

        RBO = (1 - p) Σ_{d ≤ l} p^(d-1) A(d) + p^l A(l)

    A(d) is twice the overlap over the number of names within d in both; a group stands at the rank
    of its first name. A ranking that has ended has no further names, which a longer one goes on to
    have: a list that was cut has moved. Two empty rankings are equal.

    Source: Webber, Moffat and Zobel 2010, "A similarity measure for indefinite rankings", ACM
    Transactions on Information Systems 28, equation 30 and section 5 (ties).
    """
    ranks = [_ranks(first), _ranks(second)]
    if not all(ranks):
        return float(not any(ranks))
    seen: tuple[set[str], set[str]] = (set(), set())
    at_rank: dict[int, list[tuple[int, str]]] = {}
    for side, one in enumerate(ranks):
        for name, rank in one.items():
            at_rank.setdefault(rank, []).append((side, name))
    total, agreement, shared, length = 0.0, 0.0, 0, max(map(len, ranks))
    for depth in range(1, length + 1):
        for side, name in at_rank.get(depth, ()):
            seen[side].add(name)
            shared += name in seen[1 - side]
        agreement = 2 * shared / (len(seen[0]) + len(seen[1]))
        total += (1 - p) * p ** (depth - 1) * agreement
    return total + p**length * agreement


def _ranks(groups: Sequence[Iterable[str]]) -> dict[str, int]:
    """Return the rank of each name, from 1; tied ones have that of the first of them."""
    ranks: dict[str, int] = {}
    for group in groups:
        ranks |= dict.fromkeys(group, len(ranks) + 1)
    return ranks


def tied_documents(ranking: Ranking | None) -> list[list[str]]:
    """Return the documents of a ranking in groups of equal scores, best first."""
    groups: list[list[str]] = []
    last: float | None = None
    for path, hit in (ranking.best_hits if ranking else {}).items():
        is_tied = last is not None and hit.score is not None
        if is_tied and math.isclose(last or 0.0, hit.score or 0.0, rel_tol=1e-9):
            groups[-1].append(path)
        else:
            groups.append([path])
        last = hit.score
    return groups


@dataclass(frozen=True)
class Snapshot:
    """The questions of a replay with their lists; ``about`` has its time, version and source.

    ``quotes`` are the first words of the first hits, by question and path; ``notes`` name
    the questions that were left out.
    """

    golden: GoldenSet
    run: BackendRun
    about: Mapping[str, Any]
    quotes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def write_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot as one JSON file, in one step; raise :class:`GoldenSetError`.

    Of the first three hits 200 characters are kept, so that one sees later what was there. Where
    labels have spans, the passages that span metrics read are kept whole.
    """
    lists = {}
    for query in snapshot.golden:
        outcome = snapshot.run.outcomes[query.id]
        hits = [] if outcome.answer is None else [*outcome.answer.hits]
        whole = count_span_hits(hits) if has_spans(query) else 0
        told = [_hit_dict(hit, at < whole, at < _QUOTED) for at, hit in enumerate(hits)]
        lists[query.id] = {"error": outcome.error, "hits": told}
    data = {
        "form": _FORM,
        **snapshot.about,
        "name": snapshot.run.name,
        "dataset": snapshot.run.dataset,
        "top_k": snapshot.run.top_k,
        "identity": dict(snapshot.run.identity),
        "golden": snapshot.golden.name,
        "questions": [
            query.model_dump(mode="json", exclude_defaults=True) for query in snapshot.golden
        ],
        "lists": lists,
    }
    text = json.dumps(data, ensure_ascii=False, indent=1, default=str) + "\n"
    write_whole(path, text, 0o600)  # it has words of questions and documents


def _hit_dict(hit: RankedHit, is_whole: bool, is_quoted: bool) -> dict[str, Any]:
    words = " ".join(hit.text.split())[:_QUOTED_CHARS] if is_quoted else ""
    told: dict[str, Any] = {"path": hit.path, "score": hit.score, "at": hit.location}
    told |= {"text": words, "also_in": [one.path for one in hit.also_in]}
    told |= {"whole": hit.text, "times": hit.times} if is_whole else {}
    return {name: value for name, value in told.items() if value not in (None, "", [])}


def read_snapshot(path: Path) -> Snapshot:
    """Read what :func:`write_snapshot` wrote; raise :class:`GoldenSetError` for another file."""
    try:
        told = json.loads("\n".join(read_lines(path)))
        if told.pop("form") != _FORM:
            raise GoldenSetError(
                f"{path} was written by another version of 'catalog replay --save'"
            )
        rows, lists = told.pop("questions"), told.pop("lists")
        queries = tuple(map(GoldenQuery.model_validate, rows))
        quotes = {
            (query, hit["path"]): hit["text"]
            for query, given in lists.items()
            for hit in reversed(given["hits"])
            if hit.get("text")
        }
        outcomes = {query: _read_outcome(given) for query, given in lists.items()}
        golden = GoldenSet(told.pop("golden"), queries)
        fields = (told.pop("name"), told.pop("identity"), told.pop("dataset"), told.pop("top_k"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        told = f"{path} is not a file of 'catalog replay --save', or was changed"
        raise GoldenSetError(told) from error
    if {query.id for query in queries} != outcomes.keys():
        raise GoldenSetError(f"{path} has questions without a list")
    if type(fields[-1]) is not int or not SHOWN <= fields[-1] <= _DEEPEST:
        raise GoldenSetError(f"{path} has a top_k that is not from {SHOWN} to {_DEEPEST:,}")
    return Snapshot(golden, BackendRun(*fields, outcomes), told, quotes)


def _read_outcome(given: Mapping[str, Any]) -> QueryOutcome:
    hits = []
    for one in given["hits"]:
        about = {"text": one.get("whole", ""), "times": one.get("times") and (*one["times"],)}
        also = (RankedHit(path, one.get("score"), **about) for path in one.get("also_in", ()))
        place = {"location": one.get("at", ""), "also_in": tuple(also)}
        hits.append(RankedHit(one["path"], one.get("score"), **about, **place))
    error = given["error"]
    return QueryOutcome(None if error else Ranking(tuple(hits)), error=error)


def run_replay(
    library: Library,
    *,
    save: Path | None = None,
    before: Path | None = None,
    other: Library | None = None,
    golden: Path | None = None,
    dataset: str | None = None,
    backend: str = "v2",
    since: float = 0.0,
    limit: int = 200,
    top_k: int = DEFAULT_TOP_K,
    moved: float = MOST_MOVED,
    margin: float = MARGIN,
    **shown: Any,
) -> Snapshot | Replay:
    """Ask questions, and ``save`` their lists or compare: with a file ``before``, or ``other``.

    ``other`` is a second home; both are asked in turn. The questions are those of ``golden``, else
    of the file, else of the log, ``limit`` of them from the time ``since`` on. ``shown`` are
    progress and notes, as of :class:`Measurement`. Raises :class:`InputError` unless exactly one of
    the three is given, and if the file has no list for a question.
    """
    if sum(one is not None for one in (save, before, other)) != 1:
        raise InputError("give one of a file to save, a file from before, and another home")
    earlier = None if before is None else read_snapshot(before)
    name = library.chosen_dataset(dataset or (earlier.run.dataset if earlier else None))
    notes: list[str] = []
    if golden is not None:
        queries = read_golden(golden)
    elif earlier is not None:
        queries = earlier.golden
    else:
        queries, notes = read_logged(library.database, name, since=since, limit=limit)
    depth = earlier.run.top_k if earlier else top_k
    job = Measurement(library, name, queries, depth, **shown)
    queries = job.queries
    changed: dict[str, tuple[object, object]] = {}
    if other is not None:
        first, second = job.ask([backend, backend], other)
        homes = [str(one.settings.home.name) for one in (library, other)]
        homes = homes if len({*homes}) == 2 else ["first home", "second home"]
        names = [f"{first.name} of {homes[0]}", f"{second.name} of {homes[1]}"]
        there = Measurement(other, name, queries, depth)
        if alone := sorted(set(job.names["documents"]) ^ set(there.names["documents"])):
            notes.append(f"{counted(len(alone), 'document')} of one home only, first {alone[0]}")
    elif earlier is None:
        snapshot = take_snapshot(job, backend, notes)
        write_snapshot(snapshot, save)  # type: ignore[arg-type]
        return snapshot
    else:
        if absent := [query.id for query in queries if query.id not in earlier.run.outcomes]:
            raise InputError(f"the file has no list for {absent[0]!r}: save again with this set")
        now = take_snapshot(job, backend)
        about = {key: (earlier.about.get(key), now.about[key]) for key in ("version", "corpus")}
        changed = {key: both for key, both in about.items() if both[0] != both[1]}
        kept = {query.id: earlier.run.outcomes[query.id] for query in queries}
        first, second = replace(earlier.run, outcomes=kept), now.run
        names = [f"{first.name} before", f"{second.name} now"]
    quotes = earlier.quotes if earlier else None
    return compare_replay(
        replace(first, name=names[0]),
        replace(second, name=names[1]),
        job.with_words,
        job.allowed,
        most_moved=moved,
        margin=margin,
        changed=changed,
        drift=find_drift(queries, (other or library).database, name, quotes),
        notes=notes,
    )


def take_snapshot(job: Measurement, backend: str, notes: Sequence[str] = ()) -> Snapshot:
    """Ask the questions, and return their lists with time, source, version and documents."""
    (run,) = job.ask([backend])
    about = {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "source": "log" if job.queries.name == "log" else "golden",
        "corpus": corpus_digest(job.library.database, job.dataset),
    }
    return Snapshot(job.queries, run, about, notes=tuple(notes))


def read_logged(
    database: Database, dataset: str, *, since: float = 0.0, limit: int = 200
) -> tuple[GoldenSet, list[str]]:
    """Return the last questions of the log about a dataset, each once, and notes on the rest.

    Raises :class:`InputError` if no question can be asked again.
    """
    with database.read() as connection:
        found = list(read_entries(connection, since=since))
    asked = [one for one in found if one.verb != "generate" and dataset in one.datasets]
    open_to_all = [one for one in asked if one.role is None]
    told: dict[str, LogEntry] = {}
    for entry in open_to_all:
        if (entry.query or "").strip():
            told.setdefault(entry.query_hash, entry)
    hashed = {one.query_hash for one in open_to_all if one.query is None} - told.keys()
    notes = []
    if hashed:
        count = counted(len(hashed), "question")
        notes.append(f"{count} of the log have no words (IDX_LOG__QUERY_TEXT) and are not asked")
    if by_role := len(asked) - len(open_to_all):
        notes.append(f"{counted(by_role, 'entry')} of a role are not asked")
    if not told:
        raise InputError(
            "; ".join(notes or [f"the log has no question about {dataset!r}"])
            + ": let searches be logged with their words (IDX_LOG__VERBS, IDX_LOG__QUERY_TEXT), "
            "or give --golden"
        )
    notes.append("the log keeps no filters: questions are asked without")
    queries = (GoldenQuery(id=f"log{one.id}", query=str(one.query)) for one in told.values())
    return GoldenSet("log", tuple(queries)[:limit]), notes


@dataclass(frozen=True)
class Moved:
    """One question: churn, 1 minus the overlap, and documents with their ranks before and now.

    The documents are the labelled ones, or the first three without labels; ``None`` is not found.
    """

    query: GoldenQuery
    churn: float
    documents: tuple[tuple[str, int | None, int | None], ...]

    @property
    def lost(self) -> list[tuple[str, int | None, int | None]]:
        """Return the documents that were among the first ten and are not now."""
        return [
            one for one in self.documents if (one[1] or math.inf) <= SHOWN < (one[2] or math.inf)
        ]


@dataclass(frozen=True)
class Replay:
    """The verdict on a change, the reason, and all that it rests on.

    ``moved`` has every question, the most moved first; ``churn`` is its mean, 0 to 1. Without
    labels that can be compared ``comparison`` is ``None``. ``changed`` are settings and the like,
    by dotted name, before and now. ``drift`` are labels whose text moved or changed.
    """

    verdict: Verdict
    reason: str
    churn: float
    most_moved: float
    moved: tuple[Moved, ...]
    comparison: PipelineComparison | None
    changed: Mapping[str, tuple[object, object]]
    drift: tuple[Drift, ...] = ()
    notes: tuple[str, ...] = ()


def compare_replay(
    before: BackendRun,
    now: BackendRun,
    golden: GoldenSet,
    allowed: Allowed | None = None,
    *,
    most_moved: float = MOST_MOVED,
    margin: float = MARGIN,
    changed: Mapping[str, tuple[object, object]] | None = None,
    drift: Sequence[Drift] = (),
    notes: Sequence[str] = (),
) -> Replay:
    """Compare two runs of the same questions, and decide; see :func:`decide`."""
    moved = sorted((_moved(query, before, now) for query in golden), key=lambda one: -one.churn)
    comparison, told = None, [*notes]
    if golden.answerable:
        try:
            comparison = compare_runs(before, now, golden, allowed)
        except BlindComparisonError as error:
            told.append(f"labels are not compared: {error}")
    for run in (before, now):
        if len(run.errors) == len(golden):
            failed = next(iter(run.errors.values()))
            raise BlindComparisonError(f"{run.name}: every question failed: {failed}")
    if failures := sorted(now.errors.keys() - before.errors.keys()):
        told.append(f"{counted(len(failures), 'question')} fail now that did not: {failures[:3]}")
    churn = fmean(one.churn for one in moved)
    differences = np.zeros(0) if comparison is None else comparison.differences(PRIMARY)
    verdict, reason = decide(differences, churn, most_moved=most_moved, margin=margin)
    settings = changed_settings(before.identity, now.identity)
    return Replay(
        verdict=verdict,
        reason=reason,
        churn=churn,
        most_moved=most_moved,
        moved=tuple(moved),
        comparison=comparison,
        changed={**(changed or {}), **settings},
        drift=tuple(drift),
        notes=tuple(told),
    )


def decide(
    differences: Floats, churn: float, *, most_moved: float = MOST_MOVED, margin: float = MARGIN
) -> tuple[Verdict, str]:
    """Return the verdict and its reason, from differences of nDCG@10 by question and mean churn.

    A loss is shown by 25 or more questions if the one-sided randomisation test gives p < .005 and
    the bound excludes 0. Labels decide for a change if they rule out a loss of ``margin``.
    """
    enough = differences.size >= MIN_QUERIES
    bounds: LossBounds | None = bound_losses(differences[None, :]) if enough else None
    mean = float(differences.mean()) if differences.size else 0.0
    if bounds is not None and bounds.high[0] < 0 and bounds.p[0] < LOSS_LEVEL:
        return "FAIL", f"labels show a loss: {PRIMARY} {mean:+.3f}, p = {bounds.p[0]:.4f}"
    moved = f"lists moved by {churn:.3f} on average, the limit is {most_moved:g}"
    if churn <= most_moved:
        return "PASS", f"no loss is shown; {moved}"
    if bounds is None:
        few = f"{counted(differences.size, 'labelled question')}, it takes {MIN_QUERIES}"
        return "HOLD", f"{moved}; too few labels decide: {few}"
    low = float(bounds.safe_low[0])
    if low > -margin:
        return "PASS", f"{moved}, but labels rule out a loss of {margin:g} (bound {low:+.3f})"
    return "HOLD", f"{moved}; labels do not rule out a loss of {margin:g} (bound {low:+.3f})"


def _moved(query: GoldenQuery, before: BackendRun, now: BackendRun) -> Moved:
    old, new = (run.outcomes[query.id].answer for run in (before, now))
    overlap = rank_biased_overlap(tied_documents(old), tied_documents(new))
    was, now_is = before.ranks(query.id), now.ranks(query.id)
    shown = [*query.relevant] or [*was][:3]
    documents = tuple((path, was.get(path), now_is.get(path)) for path in shown)
    return Moved(query, max(0.0, 1 - overlap), documents)


def replay_lines(found: Replay) -> Iterator[str]:
    """Yield the verdict, what changed, what moved and was lost, the test, and labels to confirm."""
    yield f"{found.verdict}: {found.reason}"
    for note in found.notes:
        yield f"! {note}"
    for name, (old, new) in [*found.changed.items()][:_NAMED]:
        yield f"  changed {name}: {shorten(str(old), 40)} → {shorten(str(new), 40)}"
    if len(found.changed) > _NAMED:
        yield f"  and {len(found.changed) - _NAMED} more changes (--json)"
    same = sum(one.churn < 1e-9 for one in found.moved)
    asked = counted(len(found.moved), "question")
    yield f"{asked}: {same} with the same list, mean churn {found.churn:.3f} (1 − RBO, p = .9)"
    if found.comparison is not None:
        yield found.comparison.verdict
        for row in found.comparison.metrics:
            if row.metric in SPAN_METRICS:
                old, new = row.test.baseline_mean, row.test.candidate_mean
                yield f"  {row.metric} {old:.3f} → {new:.3f} over {row.test.n} with quoted labels"
        yield from (f"! {warning}" for warning in found.comparison.warnings)
    lost = [(one, document) for one in found.moved for document in one.lost]
    kind = "Answers" if found.comparison is not None else "Documents"
    if lost:
        yield f"{kind} lost from the first ten: {len(lost)}"
    for one, (path, old, new) in lost[:_NAMED]:
        yield f"  {one.query.id}  {path}: {old} → {new or 'not found'}"
    if len(lost) > _NAMED:
        yield f"  and {len(lost) - _NAMED} more (--json)"
    most = [one for one in found.moved[:_NAMED] if one.churn > 1e-9]
    if most:
        yield "Moved most:"
    for one in most:
        went = [(path, old, new) for path, old, new in one.documents if old != new]
        ranks = [f"{path} {old or 'not found'} → {new or 'not found'}" for path, old, new in went]
        is_shown = any(old for _, old, _ in one.documents)
        kept = "the answers kept their ranks" if is_shown else "its answers are in neither list"
        told = ", ".join(ranks) or kept
        yield f"  {one.churn:.3f}  {one.query.id}  {shorten(one.query.query, 80)}: {told}"
    if found.drift:
        yield "Labels whose text moved or changed; 'catalog golden check --write' changes them:"
        yield from (f"  {one}" for one in found.drift)


def replay_dict(found: Replay) -> dict[str, Any]:
    """Return all numbers of a replay."""
    comparison = found.comparison
    return {
        "verdict": found.verdict,
        "reason": found.reason,
        "churn": found.churn,
        "most_moved": found.most_moved,
        "notes": list(found.notes),
        "changed": {
            name: {"before": old, "now": new} for name, (old, new) in found.changed.items()
        },
        "questions": [
            {
                "id": one.query.id,
                "query": one.query.query,
                "churn": one.churn,
                "documents": [
                    {"path": path, "before": old, "now": new} for path, old, new in one.documents
                ],
                "lost": [path for path, *_ in one.lost],
            }
            for one in found.moved
        ],
        "comparison": None if comparison is None else comparison_dict(comparison),
        "drift": [*map(asdict, found.drift)],
    }
