"""What can be asked of a store: the parameters of each verb, defined once.

Python, the command line, HTTP and agents' tools derive their arguments, defaults, bounds and help
from the classes here. To add a parameter, add a field; then use it where it acts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
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
    cast,
    get_args,
    get_type_hints,
)

from catalog.core.errors import InputError
from catalog.core.text import all_storable

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Mode = Literal["lexical", "vector", "hybrid"]
MODES: tuple[Mode, ...] = get_args(Mode)
Sort = Literal["best", "name", "modified", "size"]
SORTS: tuple[Sort, ...] = get_args(Sort)
DEFAULT_LIMIT, MAX_DOCUMENTS = 20, 1000  # documents in one result
MAX_OFFSET = 10_000_000
MAX_TEXT_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class Param:
    """Describe a parameter.

    ``least`` and ``most`` bound a whole number, ``max_items`` a list; ``flags`` are its options on
    the command line, ``--name`` if empty. ``json`` is the type that edges outside Python take, if
    it differs, and ``json_help`` is said where arguments are JSON. A ``python_only`` parameter is
    not offered there.
    """

    help: str
    least: int | None = None
    most: int | None = None
    max_items: int | None = None
    flags: tuple[str, ...] = ()
    json: Any = None
    json_help: str = ""
    python_only: bool = False


Dataset = Annotated[
    str | None,
    Param(
        "Name of the dataset; may be left out when there is only one.", flags=("--dataset", "-d")
    ),
]
FileType = Annotated[
    str | None,
    Param(
        "Only documents of this type: pdf, markdown, word, video, audio, …", flags=("--type", "-t")
    ),
]
Name = Annotated[
    str | None, Param("Only documents whose path, title or recording holds this text.")
]
Conditions = Annotated[
    object,
    Param(
        'Conditions that must all hold, such as "tag=ops" or "page>=3".',
        flags=("--filter",),
        json=list[str] | dict[str, Any] | None,
        json_help='Several in a list, or {"tag": "ops"}.',
    ),
]


@dataclass(frozen=True)
class SearchParams:
    """A search for passages.

    ``doc_ids`` holds ids or paths: ``None`` is every document, ``[]`` is none, and names of
    documents that are not there count for nothing. ``docs`` names documents as people do, and a
    name that fits none is an error. ``filters``: see ``core.filters.parse_filters``. ``rerank``
    and ``expand`` default to the settings.
    """

    query: Annotated[
        str, Param('Words, "quoted phrases", -exclusions, or typed parts: lex: … / vec: …')
    ]
    _: KW_ONLY
    dataset: Dataset = None
    top_k: Annotated[
        int, Param("How many passages.", least=1, most=1000, flags=("--top-k", "-k"))
    ] = 10
    mode: Annotated[Mode, Param("lexical (words), vector (meaning) or hybrid.")] = "hybrid"
    docs: Annotated[
        list[str] | None,
        Param(
            "Only these documents: paths, globs or #docids.",
            flags=("--doc",),
            json_help="[] is none of them.",
        ),
    ] = None
    file_type: FileType = None
    name: Name = None
    filters: Conditions = None
    rerank: Annotated[bool | None, Param("Let a second model read the best passages.")] = None
    expand: Annotated[bool | None, Param("Let a language model reword the query.")] = None
    explain: Annotated[bool, Param("Tell how each score came about.")] = False
    strict: Annotated[bool, Param("Fail when a stage fails, rather than go on without.")] = False
    doc_ids: Annotated[
        Iterable[str] | None, Param("Only these documents: ids or paths.", python_only=True)
    ] = None
    compare_with_v1: Annotated[
        bool, Param("Ask the baseline too, and tell the differences.", python_only=True)
    ] = False


@dataclass(frozen=True)
class GetParams:
    """A document, whole or some of its lines."""

    reference: Annotated[str, Param("dataset:path, path or #docid; :12-20 after it picks lines.")]
    _: KW_ONLY
    dataset: Dataset = None
    line_start: Annotated[int | None, Param("First line, counted from 1.", least=1)] = None
    line_end: Annotated[int | None, Param("Last line, itself included.", least=1)] = None
    max_bytes: Annotated[
        int | None, Param("More than this is cut after a whole line.", least=1, most=MAX_TEXT_BYTES)
    ] = None


@dataclass(frozen=True)
class MultiGetParams:
    """Several documents."""

    patterns: Annotated[list[str], Param("Paths, globs or #docids.", max_items=MAX_DOCUMENTS)]
    _: KW_ONLY
    dataset: Dataset = None
    limit: Annotated[int, Param("How many documents at most.", least=1, most=MAX_DOCUMENTS)] = (
        DEFAULT_LIMIT
    )
    max_bytes: Annotated[
        int, Param("A document larger than this is named, not given.", least=1, most=MAX_TEXT_BYTES)
    ] = 65_536


@dataclass(frozen=True)
class BrowseParams:
    """A look at which documents there are."""

    query: Annotated[str | None, Param("Words of titles, names, summaries and tags.")] = None
    _: KW_ONLY
    dataset: Dataset = None
    file_type: FileType = None
    name: Name = None
    tags: Annotated[
        Iterable[str],
        Param(
            "Only documents with all these tags.", max_items=50, flags=("--tag",), json=list[str]
        ),
    ] = ()
    filters: Conditions = None
    after: Annotated[
        str | None, Param("Only documents dated on or after YYYY-MM-DD, YYYY-MM or YYYY.")
    ] = None
    before: Annotated[str | None, Param("Only documents dated before that day, month or year.")] = (
        None
    )
    sort: Annotated[
        Sort,
        Param(
            "best (by the query, without one by name), name, modified (newest first) or size "
            "(largest first)."
        ),
    ] = "best"
    limit: Annotated[
        int, Param("How many documents.", least=1, most=MAX_DOCUMENTS, flags=("--limit", "-k"))
    ] = DEFAULT_LIMIT
    offset: Annotated[int, Param("How many to pass over first.", least=0, most=MAX_OFFSET)] = 0


@dataclass(frozen=True)
class StatusParams:
    """What the store holds; there is nothing to say."""


Params = SearchParams | GetParams | MultiGetParams | BrowseParams | StatusParams
P = ParamSpec("P")
ParamsT = TypeVar("ParamsT", bound=Params)
SelfT = TypeVar("SelfT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class ParamField:
    """Hold one parameter of a verb: its name, type, default, description and place."""

    name: str
    type: Any
    default: Any
    param: Param
    is_positional: bool

    @property
    def is_required(self) -> bool:
        """Tell whether it has no default."""
        return self.default is MISSING


@cache
def param_fields(kind: type[Any]) -> tuple[ParamField, ...]:
    """Return the parameters of a verb in order, those that only Python takes included."""
    hints = get_type_hints(kind, include_extras=True)
    parameters = []
    for field in fields(kind):
        plain, *notes = get_args(hints[field.name])
        param = next(note for note in notes if isinstance(note, Param))
        parameters.append(ParamField(field.name, plain, field.default, param, not field.kw_only))
    return tuple(parameters)


def edge_fields(kind: type[Any]) -> tuple[ParamField, ...]:
    """Return the parameters that the edges outside Python take, with the types they take."""
    return tuple(
        replace(field, type=field.param.json or field.type)
        for field in param_fields(kind)  # type: ignore[arg-type]  # a class is hashable
        if not field.param.python_only
    )


@cache
def params_model(kind: type[Any]) -> type[BaseModel]:
    """Return the pydantic model of a verb's parameters as JSON: strict, unknown names refused."""
    from pydantic import BaseModel, ConfigDict, create_model

    base = type("_Strict", (BaseModel,), {"model_config": ConfigDict(extra="forbid", strict=True)})
    definitions: Any = {
        field.name: (field.type, _model_field(field)) for field in edge_fields(kind)
    }
    return create_model(kind.__name__, __base__=base, __doc__=kind.__doc__, **definitions)


def _model_field(field: ParamField) -> Any:
    from pydantic import Field

    param, needs_items = field.param, field.is_required and field.type == list[str]
    return Field(
        ... if field.is_required else [] if field.default == () else field.default,
        description=f"{param.help} {param.json_help}".rstrip(),
        ge=param.least,
        le=param.most,
        min_length=1 if needs_items else None,
        max_length=param.max_items,
    )


def read_params(kind: type[ParamsT], arguments: Mapping[str, Any], verb: str) -> ParamsT:
    """Return the parameters that JSON arguments make; text that cannot be stored is replaced.

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


def check_bounds(params: Params) -> None:
    """Raise :class:`InputError` for a whole number that is none or out of its bounds."""
    for field in param_fields(type(params)):  # type: ignore[arg-type]
        value, param = getattr(params, field.name), field.param
        if param.least is None or (value is None and field.default is None):
            continue
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or value < param.least or (param.most is not None and value > param.most):
            bounds = f"from {param.least}" + ("" if param.most is None else f" to {param.most}")
            raise InputError(f"{field.name} must be a whole number {bounds}, not {value!r}")


def takes(
    kind: Callable[P, ParamsT],
) -> Callable[[Callable[[ParamsT], ResultT]], Callable[P, ResultT]]:
    """Let a function of one params object be called with the parameters themselves."""

    def decorate(function: Callable[[ParamsT], ResultT]) -> Callable[P, ResultT]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> ResultT:
            return function(kind(*args, **kwargs))

        result = signature(function).return_annotation
        call.__signature__ = signature(kind).replace(return_annotation=result)  # type: ignore[attr-defined]
        return call

    return decorate


def takes_self(
    kind: Callable[P, ParamsT],
) -> Callable[[Callable[[SelfT, ParamsT], ResultT]], Callable[Concatenate[SelfT, P], ResultT]]:
    """Let a method of one params object be called with the parameters themselves."""

    def decorate(
        method: Callable[[SelfT, ParamsT], ResultT],
    ) -> Callable[Concatenate[SelfT, P], ResultT]:
        @wraps(method)
        def call(self: SelfT, *args: P.args, **kwargs: P.kwargs) -> ResultT:
            return method(self, kind(*args, **kwargs))

        own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        parameters = [own, *signature(kind).parameters.values()]
        result = signature(method).return_annotation
        call.__signature__ = signature(kind).replace(  # type: ignore[attr-defined]
            parameters=parameters, return_annotation=result
        )
        return cast(Callable[Concatenate[SelfT, P], ResultT], call)

    return decorate


def validation_message(error: ValidationError, model: type[BaseModel]) -> str:
    """Say what is wrong with arguments, for whoever gave them; values are not repeated whole."""
    messages = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"]) or "arguments"
        if problem["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields) or "none"
            messages.append(f"there is no argument {_shorten(name)}; arguments: {known}")
        elif problem["type"] == "missing":
            messages.append(f"the argument {name} is missing")
        else:
            messages.append(f"{name}: {problem['msg']}, not {_shorten(problem['input'])}")
    return "; ".join(dict.fromkeys(messages))


def _shorten(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # of a number with thousands of digits
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= 60 else f"{text[:57]}…"
