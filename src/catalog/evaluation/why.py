"""Why a search lost a document: the step that lost it, and the smallest change that brings it back.

A search leaves a list after each of its steps (``StageLog.lists``). A document is found if one of
its passages is among the ``top_k`` results; with quoted words, one that holds them whole, or else
all that hold a part of them. The step that lost it is the last one that moved its best passage from
the first ``top_k`` places to a later one, or out of the list. What was never among them was cut by
``top_k``. If a leg does not even find passages by their own text, the leg is named instead; so it
is if a deeper list of it would have been enough.

Changes are tried one by one, by searches, and the first that brings the document back is kept:
those for the step come before others, small ones before large ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from catalog.core.errors import CatalogError, DocumentNotFoundError
from catalog.core.filters import And, Condition, parse_filters
from catalog.core.params import SearchParams
from catalog.core.scope import Scope
from catalog.evaluation.golden import with_words
from catalog.evaluation.losses import STEPS, Change, GoldenLosses, Loss, LossShare, StepRank
from catalog.evaluation.metrics import contains_words, overlap
from catalog.evaluation.significance import bootstrap_interval
from catalog.library.get import resolve_documents
from catalog.retrieval.query_words import query_words
from catalog.retrieval.request import SearchRequest, for_agent
from catalog.retrieval.search import Found, find_passages
from catalog.retrieval.snippets import Passage
from catalog.store.chunks import find_by_path, find_root, load_chunks
from catalog.store.embedding_cache import find_unembedded
from catalog.store.lexical.languages import stop_words
from catalog.store.manifest import entries
from catalog.store.restriction import Restriction, allowed_seqs

if TYPE_CHECKING:
    from catalog.core.documents import Chunk
    from catalog.evaluation.golden import GoldenSet, Span
    from catalog.ingest.sync_report import Progress
    from catalog.retrieval.parts import SearchParts

_LEGS = {"lexical": "words", "vector": "meaning"}
_OF_LEGS = ("words", "meaning", "words and meaning")  # steps
_UNREAD = "words first"  # the list of the fused passages that were read, sorted by their words
_DEEP = 1_000  # passages, the most that a search returns
_STRETCHES, _STRETCH, _NEAR = 3, 200, 5  # of a passage, characters, and places to be found at
_WORDS_TRIED, _SHORTEST = 12, 3
_REPLACED, _LIKED, _DEVIATIONS = 3, 40, 3.0  # words of the query; wordings; above the mean likeness


def explain_loss(
    parts: SearchParts,
    params: SearchParams,
    document: str,
    span: Span | None = None,
    *,
    tries: bool = True,
) -> Loss:
    """Return the step of a search that lost a document, or its rank, and a change that helps.

    ``document`` is any name that outputs show; with several documents the best one counts. A
    ``span`` has the words, or the seconds, that answer. A document that the params' role may not
    see is reported like one that does not exist. Without ``tries`` no change is looked for. Raises
    like a search.

    >>> explain_loss(parts, SearchParams("rotate keys", top_k=1), "keys.md").step  # doctest: +SKIP
    'top_k'
    """
    params = for_agent(params, parts.settings)
    dataset, seen = parts.library.seen_datasets(params.role, params.dataset)
    try:
        ids = resolve_documents(parts.database, dataset, [document], seen=seen)
    except DocumentNotFoundError as error:
        find_passages(parts, params)  # a call that is wrong otherwise says so
        reason, change = str(error), None  # a role learns no more
        if seen.is_all and isinstance(dataset, str):
            reason, change = _why_missing(parts, dataset, document, error)
        return Loss(params.query, document, "index", None, (), reason, change)
    return _Case(parts, params, document, ids, span).explain(tries=tries)


def explain_golden(
    parts: SearchParts,
    params: SearchParams,
    golden: GoldenSet,
    progress: Progress,
    *,
    tries: bool = True,
) -> GoldenLosses:
    """Explain each relevant document that a search with these params does not find.

    ``params.query`` is replaced by each query, and its filters by the query's. Takes tens of
    searches for each lost document, or a few if it ``tries`` no changes. A query's share of a step
    is that of its relevant documents.
    """
    losses, found, steps = list[Loss](), list[float](), list[Counter[str | None]]()
    if isinstance(params.dataset, str):
        golden = with_words(golden, parts.database, params.dataset)
    documents, asked = 0, golden.answerable
    progress.start(len(asked))
    for query in asked:
        mine = replace(params, query=query.query, filters=query.filters or params.filters)
        told = [
            explain_loss(parts, mine, label.path, label.span, tries=tries)
            for label in query.expected
            if label.grade > 0
        ]
        losses += (replace(one, id=query.id) for one in told if one.step is not None)
        steps.append(by_step := Counter(one.step for one in told))
        documents += len(told)
        found.append(by_step[None] / len(told))
        progress.advance(1, "explaining")
    shares = []
    for step in STEPS:
        if count := sum(one.step == step for one in losses):
            values = [by_step[step] / by_step.total() for by_step in steps]
            mean = float(np.mean(values))
            shares.append(LossShare(step, count, mean, bootstrap_interval(values)))
    shares.sort(key=lambda one: -one.share)
    recall = float(np.mean(found)) if found else 0.0
    return GoldenLosses(tuple(losses), documents, len(asked), recall, tuple(shares))


def _why_missing(
    parts: SearchParts, dataset: str, name: str, error: DocumentNotFoundError
) -> tuple[str, Change | None]:
    """Return why a document is not in the dataset, and what to do about it, if that is known."""
    with parts.database.read() as connection:
        root = find_root(connection, dataset)
        noted = entries(connection, dataset, name).get(name)
    if noted is not None:
        return f"{name} was read without a document: {noted.reason or 'no text'}.", None
    if root and (Path(root) / name).is_file():
        reason = f"{name} is in {root}, and the last run did not index it."
        return reason, Change(f"run 'catalog index update --dataset {dataset}'")
    return str(error), None


class _Look(NamedTuple):
    """A search: the document's places after each step, and among the results."""

    found: Found
    ranks: Mapping[str, int | None]
    rank: int | None

    def of(self, leg: str) -> int | None:
        """Return the best place in the lists of a leg, the user's own and expanded ones."""
        places = (self.ranks.get(name) for name in (leg, f"{leg} expanded"))
        return min((place for place in places if place), default=None)


class _Case:
    """One document of one search."""

    def __init__(
        self,
        parts: SearchParts,
        params: SearchParams,
        document: str,
        ids: Sequence[str],
        span: Span | None,
    ) -> None:
        self.parts, self.params, self.document, self.ids = parts, params, document, ids
        passages = list(self._passages())
        held = [(one, self._holds(one, span)) for one in passages]
        whole, partly = ([one for one, part in held if part >= it] for it in (_WHOLE, _PART))
        self.wanted = whole or partly or passages
        self.is_cut = not whole and bool(partly)  # then all of its parts are wanted
        self.unknown = "" if whole or partly else "The quoted words are not in it. "
        self.seqs = frozenset(one.seq for one in self.wanted)

    def explain(self, *, tries: bool) -> Loss:
        """Return the step that lost the document, or its rank, and the change that helps."""
        look, step, reason = self.look(), None, ""
        request = look.found.request
        if not self.wanted:
            no_text = "It has no text that can be searched."
            return Loss(request.query.original, self.document, "index", None, (), no_text)
        if look.rank is None:
            step, reason = self._step(look)
        reason = f"{self.unknown}{reason}"
        sizes = {name: len(one) for name, one in look.found.stages.lists.items()}
        listed = () if step == "filter" else look.ranks
        ranks = tuple(StepRank(_told(name), look.ranks[name], sizes[name]) for name in listed)
        change = self._change(step, look) if tries and step is not None else None
        return Loss(request.query.original, self.document, step, look.rank, ranks, reason, change)

    def look(
        self, settings: Mapping[str, Any] | None = None, synonym: str = "", **params: Any
    ) -> _Look:
        """Search with other settings and params, and with a line of ``synonyms.txt``."""
        parts = self.parts
        if settings or synonym:
            parts = parts.with_settings(settings or {})
            parts.__dict__["query_vectors"] = self.parts.query_vectors  # with its cache
            parts.synonyms = [synonym] if synonym else []
        found = find_passages(parts, replace(self.params, **params))
        ranks = {name: self._place(one) for name, one in found.stages.lists.items()}
        shown = [self._place(found.passages, {one.seq}) for one in self.wanted]
        places = [place for place in shown if place is not None]
        is_found = len(places) == len(shown) if self.is_cut else places
        rank = (max if self.is_cut else min)(places) if is_found else None
        return _Look(found, ranks, rank)

    def _place(self, listed: Iterable[Any], seqs: AbstractSet[int] | None = None) -> int | None:
        wanted = self.seqs if seqs is None else seqs
        places = (at for at, one in enumerate(listed, 1) if not wanted.isdisjoint(_seqs(one)))
        return next(places, None)

    def _passages(self) -> Iterator[Chunk]:
        by_dataset: dict[str, list[str]] = {}
        for one in self.ids:
            by_dataset.setdefault(one.partition(":")[0], []).append(one)
        with self.parts.database.read() as connection:
            for dataset, ids in by_dataset.items():
                seqs = allowed_seqs(connection, Restriction(dataset, Scope.of(ids)))
                here = [] if seqs is None else seqs.tolist()
                yield from load_chunks(connection, dataset, here, damaged=[]).values()

    def _holds(self, chunk: Chunk, span: Span | None) -> int:
        """Return whether a passage holds the span's words whole, a part of them, or none (0)."""
        if span is None or (span.text and contains_words(span.text, [chunk.text])):
            return _WHOLE
        if span.text is None:  # a moment has no words
            place, wanted = chunk.locator, (span.time_start, span.time_end)
            return _WHOLE * overlap((place.time_start, place.time_end), wanted)
        start = self._texts[chunk.source_doc_id].find(span.text)
        wanted = (start, start + len(span.text) - 1)
        return _PART * (start >= 0 and overlap((chunk.start_offset, chunk.end_offset - 1), wanted))

    @cached_property
    def _texts(self) -> dict[str, str]:
        texts = {}
        with self.parts.database.read() as connection:
            for one in self.ids:
                dataset, _, path = one.partition(":")
                document = find_by_path(connection, dataset, path)
                texts[one] = "" if document is None else document.text
        return texts

    def _step(self, look: _Look) -> tuple[str, str]:
        """Return the step that lost the document, and a sentence about it."""
        request, k = look.found.request, look.found.request.top_k
        if reason := self._forbidden(request):
            return "filter", reason
        if self.is_cut:
            return "passage", f"The quoted words are in {len(self.wanted)} passages, in parts."
        legs = [leg for leg in _LEGS if request.mode in (leg, "hybrid")]
        best = min((place for leg in legs if (place := look.of(leg))), default=None)
        if best is None and self.parts.rag.router_enabled:
            without = self.look({"router_enabled": False})
            if any(map(without.of, legs)):
                return "route", ""
        blamed = self._crossing(look, best, k) if best is not None else None
        if blamed in (None, "fusion", "top_k"):
            broken = {leg: told for leg in legs if (told := self._broken(leg, look, k))}
            if broken and (best is None or len(broken) < len(legs)):
                leg, told = next(iter(broken.items()))
                return ("words" if leg == "lexical" else "meaning"), told
        if blamed is None:
            lost = "words and meaning" if len(legs) > 1 else "words"
            lost = "meaning" if legs == ["vector"] else lost
            return lost, self._unlike(look, legs)
        shallow = [leg for leg in legs if look.of(leg) is None]
        if blamed == "fusion" and shallow and self.look(self._deeper(_DEEP)).rank is not None:
            return _LEGS[shallow[0]], self._unlike(look, legs)
        usual = self._usual_fusion() if blamed == "top_k" else {}
        if usual and (rank := self.look(usual).rank) is not None:
            return "fusion", f"With the default weights it is result {rank}."
        return blamed, self._unlike(look, legs) if blamed == "top_k" else ""

    def _crossing(self, look: _Look, before: int, k: int) -> str:
        """Return the last step that moved the document beyond the first ``k``."""
        blamed: str | None = None
        for name, after in look.ranks.items():
            if name.partition(" ")[0] in _LEGS:
                continue
            step = "fusion" if name in (_UNREAD, "distinct") else name
            if after is None:
                left = "fusion" if before <= k and blamed is None else blamed
                return (left or "top_k") if name in (_UNREAD, "top_k") else step
            blamed = None if after <= k else step if before <= k else blamed
            before = after
        return blamed or "top_k"

    def _forbidden(self, request: SearchRequest) -> str:
        """Return which condition forbids the passages, "" if none does."""
        query, within = request.query, request.restriction
        bound = replace(within, without=query.exclusions, containing=query.required)
        if self._allowed(bound):
            return ""
        if not self._allowed(within):
            return "Its documents are left out before the search."
        if not self._allowed(replace(within, without=query.exclusions)):
            return f"It has an excluded word: {', '.join(query.exclusions)}."
        return f"It does not have the quoted words: {', '.join(query.required)}."

    def _allowed(self, within: Restriction) -> bool:
        with self.parts.database.read() as connection:
            for dataset in {one.partition(":")[0] for one in self.ids} & {*within.datasets}:
                seqs = allowed_seqs(connection, within.of(dataset))
                if seqs is None or not self.seqs.isdisjoint(seqs.tolist()):
                    return True
        return False

    def _broken(self, leg: str, look: _Look, k: int) -> str:
        """Return why a leg that did not find the passages among the first ``k`` never could."""
        if (place := look.of(leg)) is not None and place <= k:
            return ""
        dataset = look.found.request.restriction.dataset
        for report in look.found.stages.reports:
            if (report.name, report.status) == (leg, "failed"):
                return f"The search by {_LEGS[leg]} failed: {report.note}."
        if leg == "vector":
            with self.parts.database.read() as connection:
                if find_unembedded(connection, dataset, self.seqs) == self.seqs:
                    return "Its passages have no vector yet: run 'catalog index update'."
        elif unsearched := self._unsearched(look):
            return f"The index does not search {unsearched!r}, which the document has."
        text = self.wanted[0].text
        starts = range(0, max(1, len(text) - _STRETCH), max(1, len(text) // _STRETCHES))
        probes = [re.sub(r"\W+", " ", text[at : at + _STRETCH]).strip() for at in starts]
        probes = [probe for probe in probes if len(probe.split()) >= _SHORTEST][:_STRETCHES]
        off: dict[str, Any] = {"rerank": False, "expand": False, "similarity_threshold": 0.0}
        places = [self.look(query=probe, mode=leg, **off).of(leg) for probe in probes]
        found = sum(place is not None and place <= _NEAR for place in places)
        size = len(look.found.stages.lists.get(leg, ()))
        if probes and 2 * found < len(probes) and size > 2 * _NEAR:
            return f"By {_LEGS[leg]} it is not even found by its own text: rebuild the index."
        return ""

    def _unsearched(self, look: _Look) -> str:
        """Return a word of both query and passage that the keyword index leaves out."""
        request = look.found.request
        here = {word.casefold() for one in self.wanted for word in _words(one.text)}
        shared = [word for word in _words(request.query.text) if word.casefold() in here]
        shared = [word for word in shared if word.casefold() not in _COMMON]
        engine = self.parts.lexical(request.restriction.dataset)
        counts = engine.document_counts(shared)[1] if shared else []
        return next((word for word, count in zip(shared, counts, strict=True) if not count), "")

    def _unlike(self, look: _Look, legs: Sequence[str]) -> str:
        """Return at which place each leg has it, and the words that its best passage lacks."""
        told = []
        for leg in legs:
            place, size = look.of(leg), len(look.found.stages.lists.get(leg, ()))
            at = f"{place}" if place else f"not among the first {size}"
            told.append(f"by {_LEGS[leg]} {at}")
        lacking = self._lacking(look.found.request)
        lacks = f"; its passages lack {', '.join(lacking)}" if lacking else ""
        return f"{', '.join(told)}{lacks}.".capitalize()

    def _lacking(self, request: SearchRequest) -> list[str]:
        """Return the words of the query that its passages do not have."""
        lacking = []
        for word in dict.fromkeys(re.findall(r"\w{2,}", request.query.text)):
            is_meant = len(word) >= _SHORTEST and word.casefold() not in _COMMON
            form = query_words(word) if is_meant or word.isupper() else None
            if form and not any(form.matches(one.text) for one in self.wanted):
                lacking.append(word)
        return lacking

    def _change(self, step: str, look: _Look) -> Change | None:
        """Return the first change that brings the document back."""
        for change in self._tries(step, look):
            if step == "passage":
                return change
            with suppress(CatalogError):  # these settings or this query do not allow the change
                rank = self.look(change.settings, change.synonym, **change.params).rank
                if rank is not None:
                    return replace(change, rank=rank)
        return None

    def _deeper(self, factor: int) -> dict[str, Any]:
        rag = self.parts.rag
        least = self.params.top_k or rag.top_k
        return {it: min(_DEEP, max(getattr(rag, it), least) * factor) for it in _DEPTHS}

    def _usual_fusion(self) -> dict[str, Any]:
        """Return the defaults of the settings of fusion that differ from them."""
        rag, fields = self.parts.rag, type(self.parts.rag).model_fields
        named = (name for name in fields if name in _FUSION)
        return {it: fields[it].default for it in named if getattr(rag, it) != fields[it].default}

    def _tries(self, step: str, look: _Look) -> Iterator[Change]:
        rag, request = self.parts.rag, look.found.request
        each = [self._deeper(factor) for factor in (2, 4, 10, 20)]
        depths = [Change(_as_settings(one), settings=one) for one in each]
        if step == "filter":
            yield from self._fewer_conditions(request)
        elif step == "passage":
            yield self._longer_passages()
            return
        elif step == "route":
            yield Change("router_enabled=false", settings={"router_enabled": False})
        elif step == "recency":
            yield Change("recency_half_life_days=0", {"recency_half_life_days": 0.0})
        elif step == "keyword":
            yield Change("chunk_selection=fused", settings={"chunk_selection": "fused"})
        elif step == "limit":
            for cap in (*range(rag.max_chunks_per_doc + 1, 11), 0):
                yield Change(f"max_chunks_per_doc={cap}", settings={"max_chunks_per_doc": cap})
        elif step == "rerank":
            for weight in (0.5, 0.25) if rag.rerank_blend == "linear" else ():
                share = round(rag.rerank_weight * weight, 3)
                yield Change(f"rerank_weight={share}", settings={"rerank_weight": share})
            yield Change("without reranking", {"rerank": False})
        elif step == "threshold":
            least = self.look(similarity_threshold=0.0, top_k=_DEEP).found.passages
            mine = [one.relevance or 0.0 for one in least if not self.seqs.isdisjoint(_seqs(one))]
            lower = int(100 * max(mine, default=0.0)) / 100
            yield Change(f"similarity_threshold={lower}", {"similarity_threshold": lower})
        elif step == "token budget":
            for size in (2 * rag.token_budget, 4 * rag.token_budget, 0):
                yield Change(f"token_budget={size}", settings={"token_budget": size})
        elif step == "top_k":
            yield from self._synonyms(request)
            yield from self._more_results(request.top_k, 2 * request.top_k)
        elif step in _OF_LEGS:
            yield from depths
            yield from self._synonyms(request)
            yield from self._other_weights(look)
        elif step == "fusion":
            if usual := self._usual_fusion():
                yield Change(_as_settings(usual), settings=usual)
            yield from self._other_weights(look)
        if step not in (*_OF_LEGS, "top_k"):
            yield from self._synonyms(request)
        yield from self._other_words(request)
        if step not in _OF_LEGS:
            yield from self._other_weights(look)
        yield from self._more_results(request.top_k, _DEEP)
        if not request.rerank:
            yield Change("rerank", {"rerank": True}, {"rerank_candidates": 20})
        yield from depths

    def _fewer_conditions(self, request: SearchRequest) -> Iterator[Change]:
        given = {name: getattr(self.params, name) for name in _CONDITIONS}
        given = {name: value for name, value in given.items() if value is not None}
        tree = parse_filters(given.get("filters"))
        for left_out in tree.parts if isinstance(tree, And) else ():
            kept = And(tuple(one for one in tree.parts if one is not left_out))  # type: ignore[union-attr]
            told = (
                f"{left_out.field}{left_out.op}{left_out.value}"
                if isinstance(left_out, Condition)
                else "one condition"
            )
            yield Change(f"without {told}", {"filters": kept})
        for name, value in given.items():
            yield Change(f"without {name}={value}", {name: None})
        plain = request.query.original
        for word in request.query.exclusions:
            plain = re.sub(rf'(?:\S*[-\u2212]"?|\bNOT\s+"?){re.escape(word)}"?', " ", plain)
        if plain != request.query.original:
            yield Change("without the excluded words", {"query": " ".join(plain.split())})
        if request.query.required:
            yield Change("without the quotes", {"query": re.sub(r'["“”„«»]', " ", plain)})
        yield Change("without any condition", dict.fromkeys(given))

    def _longer_passages(self) -> Change:
        """Return the overlap at which neighbouring passages hold the quoted words whole."""
        counter, rag = self.parts.library.model.encoder.counter, self.parts.rag
        joint = sum(len(counter.spans(one.text)) for one in self.wanted)
        overlap_ = min(joint, 4096)
        size = max(rag.chunk_size, 2 * overlap_ + 1)
        settings = {"chunk_overlap": overlap_, "chunk_size": min(size, 8192)}
        return Change(f"index again with {_as_settings(settings)}", settings=settings)

    def _more_results(self, least: int, most: int) -> Iterator[Change]:
        rank = self.look(top_k=min(most, _DEEP)).rank
        if rank is not None and rank > least:
            yield Change(f"top_k={rank}", {"top_k": rank})

    def _other_weights(self, look: _Look) -> Iterator[Change]:
        """Yield more weight for the leg that has the document, in steps; at last, it alone."""
        if (mode := look.found.request.mode) != "hybrid":
            for other in ("hybrid", *(leg for leg in _LEGS if leg != mode)):
                yield Change(f"mode {other}", {"mode": other})
            return
        places = {leg: look.of(leg) or _DEEP for leg in _LEGS}
        leg = min(places, key=places.__getitem__)
        name = "lexical_weight" if leg == "vector" else "vector_weight"
        for factor in (0.5, 0.25, 0.1):
            weight = round(getattr(self.parts.rag, name) * factor, 3)
            yield Change(f"{name}={weight}", settings={name: weight})
        yield Change(f"mode {leg}", {"mode": leg})

    def _other_words(self, request: SearchRequest) -> Iterator[Change]:
        """Yield the query with one of the document's headings' words, or rarest words."""
        if request.query.is_typed:
            return
        engine = self.parts.lexical(request.restriction.dataset)
        one = self.wanted[0]
        asked = {word.casefold() for word in _words(request.query.original)}
        named = [*_words(" ".join((one.title, *one.heading_path))), *_words(one.text)]
        words = list({word.casefold(): word for word in reversed(named)}.values())[::-1]
        words = [one for one in words if one.isalpha() and one.casefold() not in asked | _COMMON]
        counts = engine.document_counts(words)[1] if words else []
        known = [(count, word) for count, word in zip(counts, words, strict=True) if count]
        rare = [word for _, word in sorted(known, key=lambda pair: pair[0])]
        of_name = [word for _, word in known if word in named[: len(_words(one.title))]]
        for word in islice(dict.fromkeys((*of_name, *rare)), _WORDS_TRIED):
            yield Change(
                f"the word {word!r} in the query", {"query": f"{self.params.query} {word}"}
            )

    def _synonyms(self, request: SearchRequest) -> Iterator[Change]:
        """Yield lines that make words of the query mean words of the document.

        One abbreviates the other, or the document lacks the word, and the embedding model finds it
        far more like them than other frequent words of the document.
        """
        text, asked = "\n".join(one.text for one in self.wanted), request.query.text
        lacking = [] if request.query.is_typed else self._lacking(request)
        short = re.findall(r"\b[A-Z]{2,6}\b", text) if lacking else []
        lines = [f"{run} = {one}" for one in dict.fromkeys(short) for run in _spelt(one, asked)]
        words = re.findall(r"\w+", text.casefold())
        likes = Counter(one for one in words if len(one) >= _SHORTEST and one not in _COMMON)
        likes += Counter(" ".join(two) for two in pairwise(words) if likes.keys() >= {*two})
        forms = [one for one, _ in likes.most_common(_LIKED)]
        for word in lacking[:_REPLACED]:
            lines += [f"{word} = {run}" for run in _spelt(word, text)]
            if word.isupper():  # of an abbreviation the model knows little
                continue
            with suppress(CatalogError):  # without a model, abbreviations alone
                embed = partial(self.parts.query_vectors.embed, side="document")
                alike = np.array([embed(one)[0] for one in forms]) @ embed(word)[0]
                least = alike.mean() + _DEVIATIONS * alike.std()
                lines += [f"{word} = {forms[at]}" for at in np.argsort(-alike) if alike[at] > least]
        for line in dict.fromkeys(lines):
            yield Change(f"the line {line!r} in synonyms.txt", synonym=line)


_WHOLE, _PART = 2, 1
_DEPTHS = ("fts_top_k", "vector_top_k")
_FUSION = (
    *("fusion_mode", "rrf_k", "bonus_first", "bonus_second"),
    *("original_weight", "expansion_weight", "lexical_weight", "vector_weight"),
)
_CONDITIONS = ("docs", "doc_ids", "file_type", "name", "after", "before", "filters")
_COMMON = stop_words("english") | stop_words("german")


def _as_settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _spelt(short: str, text: str) -> Iterator[str]:
    """Yield the runs of words in a text whose first letters are those of an abbreviation."""
    words = re.findall(r"\w+", text.casefold())
    for at in range(len(words)):
        run = words[at : at + len(short)]
        if [one[0] for one in run] == [*short.casefold()]:
            yield " ".join(run)


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text) if len(word) >= _SHORTEST]


def _seqs(entry: Any) -> set[int]:
    """Return the rows of a passage with its copies, of a fused hit, or of a leg's hit."""
    if isinstance(entry, Passage):
        return {chunk.seq for chunk in entry.chunks}
    return {int(entry.key if hasattr(entry, "key") else entry.seq)}


def _told(name: str) -> str:
    """Return how the list of a step is called in outputs."""
    for leg, way in _LEGS.items():
        if name.startswith(leg):
            return f"by {way}{name.removeprefix(leg)}"
    return name
