"""The parameters of each verb of a store, defined once.

Python, the command line, HTTP and agents' tools derive their arguments, defaults, bounds and help
from the classes here. To add a parameter, add a field; then use it where it acts. The classes are
dataclasses, and their pydantic models are made at the first use, because a command that asks a
server starts in half the time without pydantic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, signature
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from catalog.core.errors import InputError
from catalog.core.text import all_storable

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Mode = Literal["lexical", "vector", "hybrid"]
MODES: tuple[Mode, ...] = get_args(Mode)
Order = Literal["best", "date"]
ORDERS: tuple[Order, ...] = get_args(Order)
ArtifactKind = Literal["blueprint", "pdr", "workflow", "build-plan"]
Profile = Literal["cheap", "balanced", "premium"]
KINDS: tuple[ArtifactKind, ...] = get_args(ArtifactKind)
Sort = Literal["best", "name", "modified", "size"]
DEFAULT_LIMIT, MAX_DOCUMENTS = 20, 1000  # documents in one result
MAX_PATTERNS, MAX_PATTERN_CHARS = 100, 1_500  # of one call; names that are paths do not count
MAX_OFFSET = 10_000_000
MAX_TEXT_BYTES = 10_000_000

Names = Mapping[str, Iterable[str]]
"""The aliases of each argument, by its name."""

_MAX_SHOWN = 60  # characters of a name or a value
_ALIKE = 0.7  # share of the letters, as difflib counts
_COUNT = "k n count num_results n_results max_results results"
_PATH = "path paths file files file_path"
_ALIASES = {  # other names that people and models give a parameter where arguments are JSON
    "after": "since after_date date_after modified_after from_date start_date",
    "agent": "agent_name",
    "before": "before_date date_before modified_before",
    "containing": "contains mentions mentioning phrase phrases words",
    "dataset": "datasets dataset_name dataset_id project collection namespace",
    "docs": f"doc documents document {_PATH}",
    "file_type": "file_type_filter type doc_type document_type extension format",
    "filters": "filter where conditions",
    "limit": f"top_k {_COUNT}",
    "line_end": "end_line end to_line last_line line_to",
    "line_start": "start_line start from_line first_line line_from line",
    "mode": "search_mode search_type",
    "name": "doc_name_filter name_filter doc_name document_name filename file_name title "
    f"{_PATH}",  # where there are no docs
    "offset": "skip start",
    "patterns": f"pattern glob references reference docids docs documents {_PATH}",
    "query": "q search_query query_text question text keywords search",
    "question": "q query query_text text prompt",
    "recency_half_life_days": "half_life recency_half_life half_life_days",
    "reference": "ref doc docid doc_id document document_id id source source_doc_id citation uri "
    f"name filename {_PATH}",
    "role": "as_role audience",
    "similarity_threshold": "threshold min_score min_relevance score_threshold",
    "sort": "sort_by order_by order",
    "tags": "tag label labels",
    "top_k": f"limit {_COUNT}",
    "topic": "subject about question",
}


@dataclass(frozen=True, slots=True)
class Param:
    """Describe a parameter; name, type and default are those of the field that it stands at.

    ``within`` are the least and most of a number, ``max_items`` bounds a list; ``flags`` are its
    options on the command line, ``--name`` if empty, with blanks between. ``json`` is the type that
    edges outside Python take, if it differs, and ``json_help`` is said where arguments are JSON. A
    ``python_only`` parameter is not offered there.
    """

    help: str
    within: tuple[int | None, int | None] = (None, None)
    max_items: int | None = None
    flags: str = ""
    json: Any = None
    json_help: str = ""
    python_only: bool = False
    name: str = ""
    type: Any = None
    default: Any = ...
    is_positional: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def is_required(self) -> bool:
        """Return whether the parameter has no default."""
        return self.default is ...

    @property
    def takes_list(self) -> bool:
        """Return whether a list or any iterable of texts is accepted, among other types."""
        kinds = (self.type, *get_args(self.type))
        return any(get_origin(kind) in (list, Iterable) for kind in kinds)


class Params:
    """Base of the parameters of a verb."""


P = ParamSpec("P")
ParamsT = TypeVar("ParamsT", bound=Params)
ModelT = TypeVar("ModelT", bound="BaseModel")
SelfT = TypeVar("SelfT")
ResultT = TypeVar("ResultT")

DatasetChoice = str | list[str] | None
"""The name of a dataset, those of several that are searched as one, or ``None``: all there are."""

Dataset = Annotated[
    DatasetChoice, Param("Only these datasets, by default all.", flags="--dataset --project -d")
]
FileType = Annotated[
    str | None,
    Param(
        "Only documents of this type: pdf, markdown, word, video, audio, …",
        flags="--type --file-type -t",
    ),
]
Name = Annotated[
    str | None, Param("Only documents with this text in their path, title or recording.")
]
Conditions = Annotated[
    object,
    Param(
        'Conditions that must all be true, such as "tag=ops" or "page>=3".',
        flags="--filter",
        json=list[str | dict[str, Any]] | dict[str, Any] | None,
        json_help='Several in a list, or as {"tag": "ops"}.',
    ),
]
After = Annotated[
    str | None,
    Param(
        "Only documents dated on or after YYYY-MM-DD, YYYY-MM or YYYY: the date of change, else "
        "of creation, in their metadata, else the file's."
    ),
]
Before = Annotated[str | None, Param("Only documents dated before that day, month or year.")]
Role = Annotated[
    str | None,
    Param(
        "Search as this role: only documents of its confidentiality levels (IDX_ANSWERS__ROLES)."
    ),
]
Strict = Annotated[bool, Param("Fail if a stage fails, instead of continuing without it.")]


@dataclass(frozen=True, kw_only=True)
class _Scoped(Params):
    """Where to look, and for whom."""

    dataset: Dataset = None
    role: Role = None


@dataclass(frozen=True, kw_only=True)
class _Caller(_Scoped):
    """Where to look, for whom, and with which agent."""

    agent: Annotated[str | None, Param("Use this agent ('catalog agents' lists them).")] = None


@dataclass(frozen=True, kw_only=True)
class _Narrowed(Params):
    """Which passages are wanted, and how they are found."""

    top_k: Annotated[
        int | None,
        Param(
            "Number of passages. Passages shown as evidence of an earlier one do not count. "
            "Default: top_k of the settings (10).",
            (1, 1000),
            flags="--top-k --limit -k -n",
        ),
    ] = None
    mode: Annotated[
        Mode | None, Param("lexical (words), vector (meaning) or hybrid (both; default).")
    ] = None
    docs: Annotated[
        list[str] | None,
        Param(
            "Only these documents: paths, globs or #docids.",
            flags="--doc",
            json_help="[] means none.",
        ),
    ] = None
    file_type: FileType = None
    name: Name = None
    filters: Conditions = None
    after: After = None
    before: Before = None
    rerank: Annotated[bool | None, Param("Let a second model rerank the best passages.")] = None
    expand: Annotated[bool | None, Param("Let a language model reword the query.")] = None
    similarity_threshold: Annotated[
        float | None,
        Param(
            "Least relevance of a passage, 0 to 1. Default: the setting's.",
            (0, 1),
            flags="--similarity-threshold --threshold",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class _Answerer(_Caller):
    """Parameters of the verbs that answer: the asker, the scope and the model."""

    agent_hint: Annotated[
        str | None, Param("Only documents with this agent_hint in their metadata.")
    ] = None
    model: Annotated[
        str | None, Param("openai, ollama, module:function or none. Default: IDX_LLM__PROVIDER.")
    ] = None


@dataclass(frozen=True)
class SearchParams(_Narrowed, _Caller):
    """A search for passages.

    ``doc_ids`` contains ids or paths: ``None`` selects every document, ``[]`` selects no document,
    and unknown ids are ignored. ``docs`` names documents as people do; a name without a match is an
    error. ``filters``: see ``core.filters.parse_filters``. ``after`` (inclusive) and ``before``
    (exclusive): see :meth:`DocumentCatalog.query`. ``sort`` orders the ``top_k`` best passages;
    those of documents without a date come last. ``top_k``, ``rerank``, ``expand``,
    ``similarity_threshold`` and ``recency_half_life_days`` default to the ``agent``'s, and those to
    the settings; ``mode`` and ``sort`` to the agent's, else hybrid and best. An agent's filters
    apply in addition to the call's. ``role`` is part of scope: documents that it may not see are
    treated as missing.

    Examples:
        >>> from catalog.search_v2 import search
        >>> results = search("rotate keys", dataset="notes", filters="tag=ops", after="2020")
        >>> [result.path for result in results]
        ['keys.md']
    """

    query: Annotated[
        str, Param('Words, "quoted phrases", -exclusions, or typed parts: lex: … / vec: …')
    ]
    _: KW_ONLY
    sort: Annotated[
        Order | None, Param("best (first) or date (newest document first). Default: best.")
    ] = None
    recency_half_life_days: Annotated[
        float | None,
        Param(
            "Age of a document in days at which its passages have half their score; 0: no decay. "
            "Default: the setting's.",
            (0, 100_000),
            flags="--recency-half-life-days --half-life",
        ),
    ] = None
    explain: Annotated[bool, Param("Explain each score.")] = False
    strict: Strict = False
    all_copies: Annotated[bool, Param("Show copies of a text as separate results.")] = False
    doc_ids: Annotated[
        Iterable[str] | None,
        Param("Only these documents: ids or paths.", json=list[str] | None, python_only=True),
    ] = None
    compare_with_v1: Annotated[
        bool, Param("Ask the baseline as well, and show the differences.", python_only=True)
    ] = False


@dataclass(frozen=True)
class AskParams(_Narrowed, _Answerer):
    """A question to be answered from documents, or not at all; the rest is as for a search.

    Examples:
        >>> from catalog.search_v2 import ask
        >>> print(ask("when do backups run", dataset="notes", docs=["guides/*"]).text)
        Backups run at midnight and are kept for thirty days. [1]
    """

    question: Annotated[str, Param("The question.")]
    _: KW_ONLY
    strict: Strict = False


@dataclass(frozen=True)
class GenerateParams(_Narrowed, _Answerer):
    """A document to be made from others, in sections that cite them; the rest is as for ask."""

    kind: Annotated[ArtifactKind, Param("blueprint, pdr, workflow or build-plan.")]
    _: KW_ONLY
    topic: Annotated[str, Param("The topic.")]
    strict: Strict = False


@dataclass(frozen=True)
class GetParams(_Scoped):
    """A document, whole or some of its lines."""

    reference: Annotated[
        str,
        Param(
            "dataset:path, path or #docid. A suffix selects a part: :12-20 for lines (or pages, "
            "cells, paragraphs), :1:05-1:18 for times."
        ),
    ]
    _: KW_ONLY
    line_start: Annotated[
        int | None, Param("First line (page, cell …), counted from 1.", (1, None))
    ] = None
    line_end: Annotated[int | None, Param("Last line (page, cell …), included.", (1, None))] = None
    max_bytes: Annotated[
        int | None,
        Param(
            "A longer text, or one over 10 MB, is cut after a whole line.",
            (1, MAX_TEXT_BYTES),
        ),
    ] = None


@dataclass(frozen=True)
class MultiGetParams(_Scoped):
    """Several documents, or parts of them, of 10 MB of text together at most."""

    patterns: Annotated[
        list[str],
        Param(
            "Paths, globs or #docids. A citation, link or reference with a place selects that "
            "part.",
            max_items=MAX_DOCUMENTS,
        ),
    ]
    _: KW_ONLY
    limit: Annotated[int, Param("Maximum number of documents.", (1, MAX_DOCUMENTS))] = DEFAULT_LIMIT
    max_bytes: Annotated[
        int, Param("Larger documents are named, without their text.", (1, MAX_TEXT_BYTES))
    ] = 65_536


@dataclass(frozen=True)
class BrowseParams(_Scoped):
    """A look at which documents there are."""

    query: Annotated[str | None, Param("Words in titles, names, summaries or tags.")] = None
    _: KW_ONLY
    file_type: FileType = None
    name: Name = None
    tags: Annotated[
        Iterable[str],
        Param("Only documents with all these tags.", max_items=50, flags="--tag", json=list[str]),
    ] = ()
    containing: Annotated[
        Iterable[str],
        Param(
            "Only documents with a passage that contains this word or phrase (of a list: all of "
            "them). The count is exact, and the places are shown.",
            max_items=20,
            json=list[str],
        ),
    ] = ()
    filters: Conditions = None
    after: After = None
    before: Before = None
    sort: Annotated[
        Sort,
        Param(
            "best (by the query; without one by name), name, modified (newest first) or size "
            "(largest first)."
        ),
    ] = "best"
    limit: Annotated[
        int, Param("How many documents.", (1, MAX_DOCUMENTS), flags="--limit --top-k -k -n")
    ] = DEFAULT_LIMIT
    offset: Annotated[int, Param("Number of documents to skip.", (0, MAX_OFFSET))] = 0


@dataclass(frozen=True)
class StatusParams(Params):
    """Parameters of ``status``."""

    _: KW_ONLY
    role: Role = None


@cache
def param_fields(kind: type[Params]) -> tuple[Param, ...]:
    """Return the parameters of a verb in order, with the ones for Python only."""
    hints = get_type_hints(kind, include_extras=True)
    own = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    parameters = []
    for name, field in own.items():
        plain, param = get_args(hints[name])
        others = set(_PATH.split()) if name == "name" and "docs" in own else set()
        parameters.append(
            replace(
                param,
                name=name,
                type=plain,
                default=... if field.default is MISSING else field.default,
                is_positional=not field.kw_only,
                aliases=tuple(one for one in _ALIASES.get(name, "").split() if one not in others),
            )
        )
    return tuple(sorted(parameters, key=lambda one: (not one.is_positional, not one.is_required)))


def edge_fields(kind: type[Params]) -> list[Param]:
    """Return the parameters that the edges outside Python take, with the types they take."""
    return [
        replace(one, type=one.json or one.type)
        for one in param_fields(kind)  # type: ignore[arg-type]  # a class is hashable
        if not one.python_only
    ]


def parameter_names(kind: type[Params]) -> Names:
    """Return the aliases of each parameter that Python takes, by the parameter's name."""
    return {one.name: one.aliases for one in param_fields(kind)}  # type: ignore[arg-type]


def summary_of(kind: type[Params]) -> str:
    """Return the first line of the docstring of a verb's parameters."""
    return (kind.__doc__ or "").partition("\n")[0]


@cache
def params_model(kind: type[Params], *without: str) -> type[BaseModel]:
    """Return the pydantic model of a verb's parameters in JSON: strict, no unknown names."""
    parameters = [
        replace(one, help=f"{one.help} {one.json_help}".rstrip())
        for one in edge_fields(kind)
        if one.name not in without
    ]
    return build_model(kind.__name__, _strict(), parameters, about=summary_of(kind))


@cache
def _python_model(kind: type[Params]) -> type[BaseModel]:
    """Return the model of all parameters, whose filters may be anything and are checked later."""
    parameters = [
        one if one.type is object else replace(one, type=one.json or one.type)
        for one in param_fields(kind)  # type: ignore[arg-type]
    ]
    return build_model(kind.__name__, _strict(), parameters)


@cache
def _strict() -> type[BaseModel]:
    from pydantic import BaseModel, ConfigDict

    return type("_Strict", (BaseModel,), {"model_config": ConfigDict(extra="forbid", strict=True)})


def build_model(
    name: str, base: type[ModelT], parameters: Iterable[Param], *, about: str | None = None
) -> type[ModelT]:
    """Build the pydantic model of parameters: their types, defaults, help and bounds.

    An argument may use any alias of its parameter as its name.
    """
    from pydantic import Field, create_model, model_validator

    by_name = {one.name: one for one in parameters}
    names = {name: one.aliases for name, one in by_name.items()}
    definitions: Any = {
        name: (
            Annotated[one.type, one],
            Field(
                [] if one.default == () else one.default,
                description=one.help,
                ge=one.within[0],
                le=one.within[1],
                min_length=1 if one.is_required and one.type == list[str] else None,
                max_length=one.max_items,
            ),
        )
        for name, one in by_name.items()
    }

    def take_aliases(values: Any) -> Any:
        return rename_arguments(values, names)[0] if isinstance(values, Mapping) else values

    validators: Any = {"take_aliases": model_validator(mode="before")(take_aliases)}
    return create_model(
        name, __base__=base, __doc__=about, __validators__=validators, **definitions
    )


def argument_names(model: type[BaseModel]) -> Names:
    """Return the aliases of each argument of a model, by the argument's name."""
    return {
        name: next((note.aliases for note in info.metadata if isinstance(note, Param)), ())
        for name, info in model.model_fields.items()
    }


def read_params(kind: type[ParamsT], arguments: Mapping[str, Any], verb: str) -> ParamsT:
    """Return the parameters for JSON arguments; text that cannot be stored is replaced.

    Raises :class:`InputError` that names every argument that is missing, unknown, of a wrong type
    or out of bounds.
    """
    from pydantic import ValidationError

    model = params_model(kind)  # type: ignore[arg-type]
    try:
        checked = model.model_validate(all_storable(dict(arguments)))
    except ValidationError as error:
        raise InputError(f"{verb}: {validation_message(error, model)}") from error
    return kind(**{name: getattr(checked, name) for name in checked.model_fields_set})


def check_params(params: Params) -> None:
    """Raise :class:`InputError` for a value of another type than its parameter's, or out of bounds.

    Lists may be any iterables of texts; the items of one that can be read only once are not
    checked. Filters are checked where they are used.
    """
    from pydantic import ValidationError

    model, values = _python_model(type(params)), dict(vars(params))  # type: ignore[arg-type]
    for name, value in values.items():
        if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
            values[name] = list(value) if isinstance(value, Collection) else []
    try:
        model.model_validate(values)
    except ValidationError as error:
        raise InputError(validation_message(error, model)) from None


def validation_message(error: ValidationError, model: type[BaseModel]) -> str:
    """Return a message about invalid arguments for their caller, without whole values."""
    messages: dict[str, str] = {}
    for problem in error.errors():
        name, words = str((*problem["loc"], "arguments")[0]), problem["msg"]
        if problem["type"] == "extra_forbidden":
            messages[name] = describe_unknown(name, argument_names(model))
        elif problem["type"] == "missing":
            messages[name] = f"the argument {name} is missing"
        elif name in messages:  # of a union, whose every type reports
            words = words.removeprefix("Input should be ")
            if words not in messages[name]:
                messages[name] = messages[name].replace(", not ", f" or {words}, not ", 1)
        else:
            messages[name] = f"{name}: {words}, not {_shown(problem['input'])}"
            if name == "reference" and isinstance(problem["input"], list):
                messages[name] += "; multi_get takes several documents"
    return "; ".join(messages.values())


def _shown(value: object) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except ValueError:  # of a number with thousands of digits
        return "a number too large to show"
    cut = text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
    return repr(cut) if isinstance(value, str) else cut


def takes(
    kind: Callable[P, ParamsT],
) -> Callable[[Callable[[ParamsT], ResultT]], Callable[P, ResultT]]:
    """Let a function with one params object be called with the parameters themselves."""
    return lambda function: _taking(kind, function)


def takes_self(
    kind: Callable[P, ParamsT],
) -> Callable[[Callable[[SelfT, ParamsT], ResultT]], Callable[Concatenate[SelfT, P], ResultT]]:
    """Let a method with one params object be called with the parameters themselves."""
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    return lambda method: _taking(kind, method, own)


def _taking(kind: Any, function: Callable[..., Any], *own: Parameter) -> Any:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check_names(kwargs, parameter_names(kind))
        return function(*args[: len(own)], kind(*args[len(own) :], **kwargs))

    parameters = [
        Parameter(
            one.name,
            Parameter.POSITIONAL_OR_KEYWORD if one.is_positional else Parameter.KEYWORD_ONLY,
            default=Parameter.empty if one.is_required else one.default,
            annotation=one.type,
        )
        for one in param_fields(kind)
    ]
    taken = signature(function).replace(parameters=[*own, *parameters])
    call.__signature__ = taken  # type: ignore[attr-defined]
    return call


def rename_arguments(
    arguments: Mapping[str, Any], names: Names
) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments under their own names, and a note on those with another name.

    Case, hyphens and underscores of a name do not matter (``topK``, ``top-k``). An unknown name
    stays unchanged. Raises :class:`InputError` if one argument is given under two names.
    """
    known = {fold_name(alias): name for name, aliases in names.items() for alias in aliases}
    known |= {fold_name(name): name for name in names}
    renamed = {name: value for name, value in arguments.items() if name in names}
    taken = []
    for given, value in arguments.items():
        name = known.get(fold_name(given), given)
        if given in names or (value is None and name != given):
            continue
        if name in renamed and renamed[name] is not None:
            raise InputError(f"{given} and {name} are the same argument: give one of them")
        renamed[name] = value
        if name != given:
            taken.append(f"{given} was read as {name}")
    return renamed, [", ".join(taken)] if taken else []


def check_names(given: Iterable[str], names: Names) -> None:
    """Raise :class:`InputError` for an unknown argument name, with the nearest known one."""
    for name in given:
        if name not in names:
            raise InputError(describe_unknown(name, names))


def describe_unknown(name: str, names: Names) -> str:
    """Say that no argument has that name, which is the nearest, and list all."""
    nearest = nearest_name(name, names)
    hint = f"; did you mean {nearest}?" if nearest else ";"
    return f"there is no argument {_shown(name)}{hint} arguments: {', '.join(names) or 'none'}"


def nearest_name(name: str, names: Names) -> str | None:
    """Return the argument with the most similar name or alias, if one is similar."""
    aliases = {fold_name(alias): own for own, others in names.items() for alias in (own, *others)}
    near = get_close_matches(fold_name(name[:_MAX_SHOWN]), list(aliases), n=1, cutoff=_ALIKE)
    return aliases[near[0]] if near else None


def fold_name(name: str) -> str:
    """Return the name without case, hyphens and underscores."""
    return re.sub(r"[\s_-]+", "", name).casefold()
