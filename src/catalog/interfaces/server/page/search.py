"""Build the search page: results or documents, facets, and an open document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from catalog.core.errors import CatalogError
from catalog.core.text import counted
from catalog.interfaces.server.page.document import document_view
from catalog.interfaces.server.page.explanation import score_bars, waterfall
from catalog.interfaces.server.page.state import Pairs, State, View

if TYPE_CHECKING:
    from catalog.interfaces.calls import LocalEngine
    from catalog.store.filter_sql import DatasetNames

Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]

SHOWN, MORE, MOST = 10, 10, 100  # results at first, added by a click, at most
POOL = 30  # passages or documents whose facets are counted, at least
PAUSE = "<!-- the search runs -->"
_VALUES = 8  # of a facet
_WRAPPED = re.compile(  # a break after a long line, but not before a list, a table or "Name:"
    r"([^\n]{60}[^\s|])\n(?=[^\W\d]|[(\"'“„`](?!`)|\d(?!\d*[.)]\s))(?!\w+:)"
)
_SHEET = re.compile(r"(?:'(?:[^']|'')+'|[^!']+)(?=!)")  # of cells: Costs!A1:B2
_BLANK_LINES = re.compile(r"\n\s*\n")
_TITLES = {"dataset": "Dataset", "type": "Type", "tag": "Tag", "year": "Date"}
_REPEATED = ("dataset", "tag")
_OPENED = ("doc", "first", "last", "sheet", "at", "page")


def head_view(pairs: Pairs) -> View:
    """Return the page's values before the search ends; all others are empty."""
    state = State(pairs)
    return {
        "query": state.one("q"),
        "hidden": state.without("q", "n", *_OPENED),
        "sorts": _choices("sort", state, {"best": "best first", "date": "newest first"}),
        "modes": _choices(
            "mode", state, {"hybrid": "words and meaning", "lexical": "words", "vector": "meaning"}
        ),
        "results": [], "entries": [], "facets": [], "notes": [], "error": "", "told": "",
        "stages": [], "document": None, "more": "", "reads": bool(state.one("doc")),
        "closed": state.address(*_OPENED), "pause": PAUSE,
    }  # fmt: skip


def search_view(engine: LocalEngine, pairs: Pairs) -> View:
    """Return the rest of the page for an address; it includes the error of a verb."""
    state, ask, view = State(pairs), engine.ask, View()
    shown = min(max(1, state.number("n", SHOWN)), MOST)
    found: list[dict[str, Any]] = []
    datasets: DatasetNames = ()
    try:
        datasets, _ = engine.library.seen_datasets(None)
        found = (_searched if state.one("q") else _listed)(ask, state, shown, view)
    except CatalogError as error:
        view["error"] = str(error)[:2000]
    view["facets"] = _facets(state, found, view.pop("types", {}), datasets)
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
    arguments = {"query": state.one("q"), "top_k": max(POOL, shown + 1), **state.narrowed()}
    arguments |= {name: state.one(name) for name in ("mode", "sort") if state.one(name)}
    if state.all("tag"):
        arguments["filters"] = [{"tags": tag} for tag in state.all("tag")]
    answer = ask("search", {**arguments, "explain": True})
    found: list[dict[str, Any]] = answer["results"]
    view["results"] = [_result(one, state) for one in found[:shown]]
    view["notes"] = answer["notes"]
    view["stages"] = waterfall(answer["stages"])
    count = f"{len(view['results'])} of the best {len(found)} passages" if found else "Nothing"
    doubt = "; probably none of them answers" if found and answer["low_confidence"] else ""
    view["told"] = f"{count} found in {answer['elapsed_ms']:.0f} ms{doubt}"
    return found


def _listed(ask: Ask, state: State, shown: int, view: View) -> list[dict[str, Any]]:
    """List documents, newest first, where nothing is asked."""
    arguments = {"limit": MOST, "sort": "modified", **state.narrowed()}
    page = ask("browse", {**arguments, "tags": state.all("tag")})
    entries: list[dict[str, Any]] = page["entries"]
    view["entries"] = [{**one, "open": state.address(**_opened(one))} for one in entries[:shown]]
    view["notes"], view["types"] = page["notes"], page["types"]
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
    """Return the parts of a passage for the template."""
    place = result["citation"].removeprefix("[source: ").removesuffix("]")
    place = place.removeprefix(result["title"]).removeprefix(", ")
    opened = _opened(result, result["locator"])
    return {
        "title": result["title"] or result["path"],
        "path": result["path"],
        "place": place or result["path"],
        "dataset": result["dataset"],
        "date": (result["date"] or "")[:10],
        "tags": result["tags"],
        "sections": result["heading_path"],
        "snippet": marked(result["snippet"], result["matches"]),
        "relevance": result["relevance"],
        "certainty": result["certainty"],
        "also_in": [other["path"] for other in result.get("also_in", ())],
        "score": score_bars(result["explain"]) if result.get("explain") else None,
        "open": state.address(**opened) + "#at",
        "is_open": all(
            state.one(name) == str(opened[name] or "") for name in ("doc", "first", "sheet")
        ),
    }


def marked(text: str, matches: Iterable[Sequence[int]]) -> list[tuple[str, bool]]:
    """Cut a text at its ``[start, end)`` matches; ``True``: a match.

    Blank lines are left out, and the lines of a paragraph become one.
    """
    text = _WRAPPED.sub(r"\1 ", text)  # of equal length, so that the matches stay in place
    parts, done = [], 0
    for start, end in matches:
        parts += [(text[done:start], False), (text[start:end], True)]
        done = end
    parts.append((text[done:], False))
    return [(_BLANK_LINES.sub("\n", part), is_match) for part, is_match in parts if part]


def _facets(
    state: State,
    found: Sequence[Mapping[str, Any]],
    types: Mapping[str, int],
    datasets: DatasetNames,
) -> list[View]:
    """Count the values of the passages or documents found, with addresses to narrow and widen.

    ``types`` has exact counts, if they are known. Of ``datasets`` the ones without a passage found
    follow, without a count.
    """
    names = (datasets,) if isinstance(datasets, str) else datasets
    in_datasets = Counter(dict.fromkeys(names, 0))
    in_datasets.update(one["dataset"] for one in found)
    counts = {
        "dataset": in_datasets,
        "type": Counter(types) or Counter(one["file_type"] for one in found),
        "tag": Counter(tag for one in found for tag in one["tags"]),
        "year": Counter((one["date"] or "")[:4] for one in found),
    }
    return [
        {"title": title, "values": list(_values(state, name, counts[name]))}
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
