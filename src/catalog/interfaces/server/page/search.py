"""Build the search page: results or documents, facets, and an open document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from catalog.core.errors import CatalogError
from catalog.core.params import SearchParams
from catalog.core.text import counted
from catalog.interfaces.server.page.document import document_view
from catalog.interfaces.server.page.state import Pairs, State, View
from catalog.interfaces.terminal import HARDLY
from catalog.retrieval.citations import format_headings

if TYPE_CHECKING:
    from catalog.interfaces.calls import LocalEngine
    from catalog.store.filter_sql import DatasetNames

Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]

SHOWN, MORE, MOST = 10, 10, 100  # results at first, added by a click, at most
POOL = 30  # passages or documents whose facets are counted, at least
PAUSE = "<!-- the search runs -->"
_VALUES = 8  # of a facet
_SHEET = re.compile(r"(?:'(?:[^']|'')+'|[^!']+)(?=!)")  # of cells: Costs!A1:B2
_BLANK_LINES = re.compile(r"\n\s*\n")
_TITLES = {"dataset": "Dataset", "type": "Type", "tag": "Tag", "year": "Date"}
_REPEATED = ("dataset", "tag")
_OPENED = ("doc", "first", "last", "sheet", "at", "page")


def head_view(pairs: Pairs) -> View:
    """Return the page's values before the search ends; all others are empty."""
    state = State(pairs)
    empty = ("groups", "weak", "entries", "facets", "notes", "stages", "error", "told", "counted")
    return {
        **dict.fromkeys((*empty, "document", "more", "loss"), ""),
        "query": state.one("q"),
        "hidden": state.without("q", "n", "why", *_OPENED),
        "asked": state.without("why", *_OPENED),
        "why": state.one("why"),
        "sorts": _choices("sort", state, {"best": "best first", "date": "newest first"}),
        "modes": _choices(
            "mode", state, {"hybrid": "words and meaning", "lexical": "words", "vector": "meaning"}
        ),
        "reads": bool(state.one("doc")),
        "closed": state.address(*_OPENED),
        "pause": PAUSE,
    }


def search_view(engine: LocalEngine, pairs: Pairs) -> View:
    """Return the rest of the page for an address; it includes the error of a verb."""
    state, view = State(pairs), View()
    shown = min(max(1, state.number("n", SHOWN)), MOST)
    found: list[dict[str, Any]] = []
    names: DatasetNames = ()
    try:
        names, _ = engine.library.seen_datasets(None)
        found = (_searched if state.one("q") else _listed)(engine.ask, state, shown, view)
        if state.one("q") and state.one("why"):
            view["loss"] = _explained(engine, state)
    except CatalogError as error:
        view["error"] = str(error)[:2000]
    datasets = view.pop("datasets", dict.fromkeys((names,) if isinstance(names, str) else names, 0))
    view["facets"] = _facets(state, found, datasets, view.pop("types", None))
    if shown < min(len(found), MOST):
        view["more"] = state.address(n=shown + MORE)
    if state.one("doc"):
        view["document"] = document_view(engine, state, found if state.one("q") else ())
    return view


def _choices(name: str, state: State, labels: Mapping[str, str]) -> list[tuple[str, str, bool]]:
    chosen = state.one(name) or next(iter(labels))
    return [(value, label, value == chosen) for value, label in labels.items()]


def _searched(ask: Ask, state: State, shown: int, view: View) -> list[dict[str, Any]]:
    """Search, add the shown passages to the view, and return all passages found."""
    arguments = {"query": state.one("q"), "top_k": max(POOL, shown + 1), "explain": True}
    answer = ask("search", {**arguments, **_conditions(state)})
    found: list[dict[str, Any]] = answer["results"]
    results = [_result(one, state) for one in found[:shown]]
    best = [one for one in results if one["relevance"] >= HARDLY] or results[:1]
    weak = [one for one in results if one not in best]
    view |= {"groups": _grouped(best), "weak": _grouped(weak), "weak_count": len(weak)}
    view["shows_weak"] = shown > SHOWN or any(one["is_open"] for one in weak)
    view["notes"] = answer["notes"]
    view["stages"] = answer["stages"]
    view["counted"] = f"of the best {len(found)} passages" if found else ""
    count = f"{len(results)} {view['counted']}" if found else "Nothing"
    doubt = "; probably none of them answers" if found and answer["low_confidence"] else ""
    view["told"] = f"{count} found in {answer['elapsed_ms']:.0f} ms{doubt}"
    return found


def _explained(engine: LocalEngine, state: State) -> list[str]:
    """Return why the search does not show a document among the first results."""
    from catalog.evaluation.losses import loss_lines
    from catalog.evaluation.why import explain_loss

    narrowed: Any = {**_conditions(state), "top_k": SHOWN}
    params = SearchParams(state.one("q"), **narrowed)
    return list(loss_lines(explain_loss(engine.service.parts, params, state.one("why"))))


def _conditions(state: State) -> dict[str, Any]:
    """Return the filters, mode and order of the state as arguments of a search."""
    arguments = state.narrowed()
    arguments |= {name: state.one(name) for name in ("mode", "sort") if state.one(name)}
    if state.all("tag"):
        arguments["filters"] = [{"tags": tag} for tag in state.all("tag")]
    return arguments


def _listed(ask: Ask, state: State, shown: int, view: View) -> list[dict[str, Any]]:
    """List documents, newest first, where nothing is asked."""
    narrowed = {**state.narrowed(), "tags": state.all("tag")}
    page = ask("browse", {"limit": MOST, "sort": "modified", **narrowed})
    entries: list[dict[str, Any]] = page["entries"]
    view["entries"] = [{**one, "open": state.address(**_opened(one))} for one in entries[:shown]]
    view["notes"], view["types"] = page["notes"], page["types"]
    if not any(narrowed[name] for name in narrowed if name != "dataset"):
        view["datasets"] = {
            one["dataset"]: one["documents"] for one in ask("status", {})["datasets"]
        }
    view["told"] = f"{counted(page['total'], 'document')}, newest first"
    return entries


def _opened(item: Mapping[str, Any], place: Mapping[str, Any] | None = None) -> View:
    """Return the part of a state that opens a document at a place."""
    place = place or {}
    in_lines = place.get("unit") == "time" and place["line_start"] is not None
    names = ("line_start", "line_end") if in_lines else ("start", "end")
    lines = dict(zip(("first", "last"), map(place.get, names), strict=True))
    moment, sheet = item.get("moment"), _SHEET.match(place.get("cells") or "")
    at = None if moment is None else int(moment)
    return {
        "doc": item["source_doc_id"],
        **lines,
        "sheet": sheet and sheet[0],
        "at": at,
        "page": None,
    }


def _result(result: dict[str, Any], state: State) -> View:
    """Return a passage with the parts that only the page shows."""
    place = result["citation"].removeprefix("[source: ").removesuffix("]")
    place = place.removeprefix(result["title"]).removeprefix(", ")
    if result["locator"]["unit"] == "paragraph":
        place = place.rpartition(", ")[2]  # without the headings
    opened = _opened(result, result["locator"])
    path, others = result["heading_path"], result["sections"][len(result["heading_path"]) :]
    return {
        **result,
        "place": place or result["path"],
        "headings": format_headings([one for one in path if one != result["title"]], others),
        "snippet": marked(result["snippet"], result["matches"]),
        "score": score_bars(result["explain"]) if result.get("explain") else None,
        "open": state.address(**opened) + "#at",
        "is_open": all(
            state.one(name) == str(opened[name] or "") for name in ("doc", "first", "sheet")
        ),
    }


def _grouped(results: Iterable[View]) -> list[list[View]]:
    """Return the passages of each document together, in the order of the best ones."""
    groups: dict[str, list[View]] = {}
    for one in results:
        groups.setdefault(one["source_doc_id"], []).append(one)
    return list(groups.values())


def marked(text: str, matches: Iterable[Sequence[int]]) -> list[tuple[str, bool]]:
    """Cut a text at its ``[start, end)`` matches; ``True``: a match. Blank lines are left out."""
    parts, done = [], 0
    for start, end in matches:
        parts += [(text[done:start], False), (text[start:end], True)]
        done = end
    parts.append((text[done:], False))
    return [(_BLANK_LINES.sub("\n", part), is_match) for part, is_match in parts if part]


def score_bars(explain: Mapping[str, Any]) -> list[View]:
    """Return groups of bars, each bar beginning where the last one ended.

    The bars of the first group add up to the fused score. If age or a reranker changed that, those
    of a second group add up to the score.
    """
    parts = [
        (
            f"{one['leg']}, rank {one['rank']}" + ", reworded" * (one["origin"] == "expansion"),
            one["contribution"],
            one["leg"],
            f"{one['engine']} score {one['raw_score']:.4g}, weight {one['weight']:.3g}"
            + ", from the list's floor in deviations" * (explain["fusion"] == "adaptive"),
        )
        for one in explain["contributions"]
    ]
    if explain["bonus"]:
        kind = "top-rank" if explain["fusion"] == "rrf" else "words"
        parts.append((f"{kind} bonus", explain["bonus"], "more", ""))
    groups = [_bars(f"score ({explain['fusion']} fusion)", parts, explain["fused"])]
    recency, rerank, parts = explain["recency"], explain["rerank"], []
    if rerank is not None:
        raw = "" if rerank["raw_score"] is None else f"{rerank['model']} {rerank['raw_score']:.4g}"
        parts += [
            (f"fused, rank {rerank['rank']}", rerank["fused_part"], "lexical", rerank["blend"]),
            ("reranker", rerank["rerank_part"], "more", raw),
        ]
    elif recency is not None:
        aged = f"half after {recency['half_life_days']:g} days"
        parts.append((f"{recency['age_days']:.0f} days old", explain["score"], "more", aged))
    return [*groups, _bars("score", parts, explain["score"])] if parts else groups


def _bars(title: str, parts: Sequence[tuple[str, float, str, str]], total: float) -> View:
    """Return bars with place and width in percent; a bar of a negative value goes back."""
    values = [value for _, value, _, _ in parts]
    ends = [0.0, *accumulate(values)]
    least, width = min(ends), max(ends) - min(ends) or 1.0
    bars = [
        {
            **dict(zip(("label", "value", "kind", "note"), part, strict=True)),
            "x": round(100 * (min(start, start + value) - least) / width, 2),
            "width": round(100 * abs(value) / width, 2),
        }
        for part, value, start in zip(parts, values, ends, strict=False)
    ]
    return {"title": title, "bars": bars, "total": total}


def _facets(
    state: State,
    found: Sequence[Mapping[str, Any]],
    datasets: Mapping[str, int],
    types: Mapping[str, int] | None,
) -> list[View]:
    """Return the values of each facet with addresses to narrow and widen.

    Of a search, the passages ``found`` are counted. A listing has exact ``types`` and ``datasets``;
    tags and dates, which only its newest documents are known to have, get no number.
    """
    counts = {
        "dataset": Counter(datasets),
        "type": Counter(types),
        "tag": Counter(tag for one in found for tag in one["tags"]),
        "year": Counter((one["date"] or "")[:4] for one in found),
    }
    if types is None:
        counts["dataset"].update(one["dataset"] for one in found)
        counts["type"].update(one["file_type"] for one in found)
    return [
        {
            "title": title,
            "values": list(_values(state, name, counts[name])),
            "is_counted": types is None or name in ("dataset", "type"),
        }
        for name, title in _TITLES.items()
        if any(counts[name]) or state.all(name)
    ]


def _values(state: State, name: str, counts: Counter[str]) -> Iterator[View]:
    chosen = state.all(name)
    order = counts.most_common() if name != "year" else sorted(counts.items(), reverse=True)
    others = [value for value, _ in order if value and value not in chosen][:_VALUES]
    for value in (*chosen, *others):
        kept = state.pairs if name in _REPEATED or value in chosen else state.without(name)
        pairs = [pair for pair in kept if pair[0] != "n" and pair != (name, value)]
        address = State(pairs if value in chosen else [*pairs, (name, value)]).address()
        about = {"value": value, "count": counts[value], "address": address}
        yield {**about, "is_chosen": value in chosen}
