"""``catalog collection``: a Qdrant collection that other software filled, checked and searched."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from catalog.interfaces.cli.options import Printed, command, logged_settings
from catalog.interfaces.cli.output import columns_of
from catalog.interfaces.plain_text import one_line, shorten, wrap

if TYPE_CHECKING:
    from catalog.core.results import CollectionResults

_INDENT = "    "
_SHOWN = 300  # characters of a passage

app = typer.Typer(
    help="Search a Qdrant collection of other software (IDX_COLLECTION__*).", no_args_is_help=True
)


@app.command("search")
@command
def search_collection(
    context: typer.Context,
    query: str = Argument(help="Text to search for."),
    top_k: int | None = Option(
        None, "--top-k", "-k", help="How many passages.", show_default=False
    ),
    filters: list[str] | None = Option(
        None,
        "--filter",
        "-f",
        help="source_url=…, page_title=…, section=… or an indexed field; may be repeated.",
    ),
    threshold: float | None = Option(None, min=-1, max=1, help="Least score of a passage."),
    explain: bool = Option(False, "--explain", help="Show the report of each stage."),
) -> Printed:
    """Find the passages nearest to a query; nothing is written to the collection.

    Examples:
        catalog collection search "rotate keys"
        catalog collection search "rotate keys" -k 5 --json
    """
    from catalog.interfaces.terminal import stage_lines
    from catalog.search_v2.collections import CollectionSearch

    settings = logged_settings(context)
    with CollectionSearch(settings) as search:
        results = search.search(query, top_k=top_k, filters=filters, threshold=threshold)
    told = stage_lines(results.stages) if explain else [results.stages[-1].note]
    lines = _result_lines(results, columns_of(sys.stdout))
    return Printed(results.to_dict(), lines, filter(None, told))


@app.command("check")
@command
def check_collection(context: typer.Context) -> Printed:
    """Check the collection, its fields and the model; exit with 1 if they do not fit.

    Examples:
        catalog collection check
        catalog collection check --json
    """
    from catalog.search_v2.collections import CollectionSearch

    settings = logged_settings(context)
    with CollectionSearch(settings) as search:
        state = search.check()
    return Printed(state, _state_lines(state), code=int(not state["fits"]))


def _result_lines(results: CollectionResults, width: int | None) -> Iterator[str]:
    if results.low_confidence and len(results) > 0:
        yield f"low confidence: the best score is {results[0].score:.4g}"
        yield ""
    for result in results:
        low = ", low" if result.is_low else ""
        yield f"[{result.rank}] {one_line(result.citation)}  score {result.score:.4g}{low}"
        text = shorten(one_line(result.text), _SHOWN) or "(its payload has no text)"
        yield from wrap(_INDENT + text, width, _INDENT)
        yield ""
    if len(results) == 0:
        yield f"No passage of {results.dataset!r} is near {results.query!r}."


def _state_lines(state: Mapping[str, Any]) -> Iterator[str]:
    vector = f", vector {state['vector']!r}" if state["vector"] is not None else ""
    yield f"{state['collection']} at {state['address']}: {state['points']} points{vector}"
    yield f"vectors   {state['dim']} dimensions, {state['distance']}"
    yield f"model     {state['model']}, {state['model_dim']} dimensions: {_verdict(state)}"
    for name, key in state["payload"].items():
        found = f"{state['fields'][name]} of {state['sampled']}"
        index = state["indexes"].get(key, "none")
        yield f"{name:<13} in {key!r}: {found} sampled points have it; index: {index}"


def _verdict(state: Mapping[str, Any]) -> str:
    if state["dim"] != state["model_dim"]:
        return "it is not the model that filled it"
    if state["agreement"] is None:
        return "no stored text was found to check whether it filled the collection"
    how = "as" if state["fits"] else "not as"
    agreed = f"its vectors agree with those stored by {state['agreement']:.2f}"
    return f"{agreed}, {how} those of the model that filled it do"
