"""What requests of ``/v1`` hold: the verbs' parameters in bodies, query strings and paths."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Body, Depends, Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict

from catalog.core.param_fields import build_model, edge_fields, params_model
from catalog.core.params import (
    AskParams,
    BrowseParams,
    GenerateParams,
    GetParams,
    MultiGetParams,
    Params,
    SearchParams,
    StatusParams,
)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Texts = Annotated[list[str], BeforeValidator(_as_list)]


class QueryString(BaseModel):
    """Base of the parameters that a query string holds, where every value is text."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def query_string(
    kind: type[Params],
    *,
    without: Collection[str] = (),
    **descriptions: str,
) -> type[QueryString]:
    """Return the model of a verb's parameters in a query string.

    A list is given by repeating its name. ``descriptions`` are by parameter.
    """
    parameters = []
    for field in edge_fields(kind):
        if field.name not in without:
            field = field.with_help(descriptions.get(field.name, field.param.help))
            as_list = replace(field, type=_Texts, default=())
            parameters.append(as_list if field.takes_list else field)
    return build_model(f"{kind.__name__}Query", QueryString, parameters)


def arguments_from(model: type[BaseModel], source: Any) -> Any:
    """Return the dependency that gives the arguments which a request has, and no defaults.

    ``source`` is where FastAPI finds the model: ``Body()`` or ``Query()``.
    """

    async def read(arguments: BaseModel) -> dict[str, Any]:
        return arguments.model_dump(exclude_unset=True)

    read.__annotations__["arguments"] = Annotated[model, source]
    return Depends(read)


_FILTERS = 'Conditions that must all hold, such as "tag=ops" or "page>=3".'
SEARCH_BODY = arguments_from(
    params_model(SearchParams),
    Body(
        openapi_examples={
            "words": {"summary": "Words", "value": {"query": "rotate the api keys", "top_k": 5}},
            "narrowed": {
                "summary": "Some documents only",
                "value": {"query": "backup", "file_type": "markdown", "filters": ["tags=ops"]},
            },
        }
    ),
)
SEARCH_QUERY = arguments_from(
    query_string(
        SearchParams,
        docs="Only these documents: paths, globs or #docids.",
        filters=_FILTERS,
    ),
    Query(),
)
ASK_BODY = arguments_from(
    params_model(AskParams, "model"),  # which names code to load, and is for the owner to say
    Body(
        openapi_examples={
            "question": {"summary": "A question", "value": {"question": "who may cancel?"}},
            "role": {
                "summary": "As for a role",
                "value": {"question": "who may cancel?", "role": "employee"},
            },
        }
    ),
)
GENERATE_BODY = arguments_from(
    params_model(GenerateParams, "model"),
    Body(
        openapi_examples={
            "blueprint": {
                "summary": "A blueprint",
                "value": {"kind": "blueprint", "topic": "mobile app", "dataset": "acme"},
            }
        }
    ),
)
BROWSE_QUERY = arguments_from(
    query_string(
        BrowseParams,
        filters=_FILTERS,
        limit="How many documents; a stream gives all if it is left out.",
    ),
    Query(),
)
MULTI_GET_BODY = arguments_from(
    params_model(MultiGetParams),
    Body(
        openapi_examples={
            "pattern": {"summary": "All of a folder", "value": {"patterns": ["guides/*.md"]}}
        }
    ),
)
GET_QUERY = arguments_from(query_string(GetParams, without=("reference",)), Query())
STATUS_QUERY = arguments_from(query_string(StatusParams), Query())
GET_PATH = Path(
    description=(
        "dataset:path, path or #docid (as %23docid); :12-20 after it picks lines, or else pages, "
        "cells, paragraphs: what its citations count. :1:05-1:18 picks times."
    ),
    examples=["notes:guides/backup.md:3-5"],
)
