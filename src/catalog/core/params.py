"""The parameters of each verb of a store, defined once.

Every edge derives its arguments, defaults, bounds and help from the classes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

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

_COUNT = "k n count num_results n_results max_results results"
_PATH = "path paths file files file_path"
_OTHER_NAMES = f"""
    after: since after_date date_after modified_after from_date start_date
    agent: agent_name
    before: before_date date_before modified_before
    containing: contains mentions mentioning phrase phrases words
    dataset: datasets dataset_name dataset_id project collection namespace
    docs: doc documents document {_PATH}
    file_type: file_type_filter type doc_type document_type extension format
    filters: filter where conditions
    limit: top_k {_COUNT}
    line_end: end_line end to_line last_line line_to
    line_start: start_line start from_line first_line line_from line
    mode: search_mode search_type
    name: doc_name_filter name_filter doc_name document_name filename file_name title {_PATH}
    offset: skip start
    patterns: pattern glob references reference docids docs documents {_PATH}
    query: q search_query query_text question text keywords search
    question: q query query_text text prompt
    recency_half_life_days: half_life recency_half_life half_life_days
    reference: ref doc docid doc_id document document_id id source source_doc_id citation uri
      name filename {_PATH}
    role: as_role audience
    similarity_threshold: threshold min_score min_relevance score_threshold
    sort: sort_by order_by order
    tags: tag label labels
    top_k: limit similarity_top_k {_COUNT}
    topic: subject about question
"""  # that people and models give a parameter where arguments are JSON
_ALIASES = {
    name: others.split()
    for name, _, others in (
        one.partition(":") for one in re.split(r"\s(?=\w++:)", _OTHER_NAMES.strip())
    )
}


@dataclass(frozen=True, slots=True)
class Param:
    """Describe a parameter; name, type and default are those of the field that it stands at.

    ``within`` are the least and most of a number, ``flags`` its options on the command line,
    ``--name`` if empty. ``json`` is the type that edges outside Python take, if it differs, and
    ``json_help`` is said where arguments are JSON.
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


def about(param: Param | str, *bounds: Any, **more: Any) -> dict[str, Any]:
    """Return the metadata of the field of a parameter, which :class:`Param` describes."""
    return {"param": param if isinstance(param, Param) else Param(param, *bounds, **more)}


def optional(default: Any, param: Param | str, *bounds: Any, **more: Any) -> Any:
    """Return the field of a parameter with a default."""
    return field(default=default, metadata=about(param, *bounds, **more))


class Params:
    """Base of the parameters of a verb."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


DatasetChoice = str | list[str] | None
"""The name of a dataset, those of several that are searched as one, or ``None``: all there are."""

FILE_TYPE = Param(
    "Only documents of this type: pdf, markdown, word, video, audio, …",
    flags="--type --file-type -t",
)
NAME = Param("Only documents with this text in their path, title or recording.")
CONDITIONS = Param(
    'Conditions that must all be true, such as "tag=ops" or "page>=3".',
    flags="--filter",
    json=list[str | dict[str, Any]] | dict[str, Any] | None,
    json_help='Several in a list, or as {"tag": "ops"}.',
)
AFTER = Param(
    "Only documents dated on or after YYYY-MM-DD, YYYY-MM or YYYY: the date of change, else "
    "of creation, in their metadata, else the file's."
)
BEFORE = Param("Only documents dated before that day, month or year.")
ROLE = Param(
    "Search as this role: only documents of its confidentiality levels (IDX_ANSWERS__ROLES)."
)
STRICT = Param("Fail if a stage fails, instead of continuing without it.")


@dataclass(frozen=True, kw_only=True)
class _Scoped(Params):
    dataset: DatasetChoice = optional(
        None, "Only these datasets, by default all.", flags="--dataset --project -d"
    )
    role: str | None = optional(None, ROLE)


@dataclass(frozen=True, kw_only=True)
class _Caller(_Scoped):
    agent: str | None = optional(None, "Use this agent ('catalog agents' lists them).")


@dataclass(frozen=True, kw_only=True)
class _Narrowed(Params):
    top_k: int | None = optional(
        None,
        "Number of passages. Passages shown as evidence of an earlier one do not count. "
        "Default: top_k of the settings (10).",
        (1, 1000),
        flags="--top-k --limit -k -n",
    )
    mode: Mode | None = optional(
        None, "lexical (words), vector (meaning) or hybrid (both; default)."
    )
    docs: list[str] | None = optional(
        None,
        "Only these documents: paths, globs or #docids.",
        flags="--doc",
        json_help="[] means none.",
    )
    file_type: str | None = optional(None, FILE_TYPE)
    name: str | None = optional(None, NAME)
    filters: object = optional(None, CONDITIONS)
    after: str | None = optional(None, AFTER)
    before: str | None = optional(None, BEFORE)
    rerank: bool | None = optional(None, "Let a second model rerank the best passages.")
    expand: bool | None = optional(None, "Let a language model reword the query.")
    similarity_threshold: float | None = optional(
        None,
        "Least relevance of a passage, 0 to 1. Default: the setting's.",
        (0, 1),
        flags="--similarity-threshold --threshold",
    )


@dataclass(frozen=True, kw_only=True)
class _Answerer(_Caller):
    agent_hint: str | None = optional(
        None, "Only documents with this agent_hint in their metadata."
    )
    model: str | None = optional(
        None, "openai, ollama, module:function or none. Default: IDX_LLM__PROVIDER."
    )


@dataclass(frozen=True)
class SearchParams(_Narrowed, _Caller):
    """A search for passages.

    ``doc_ids`` contains ids or paths: ``None`` selects every document, ``[]`` selects no document,
    and unknown ids are ignored. ``docs`` names documents as people do; a name without a match is an
    error. ``filters``: see ``core.filters.parse_filters``. ``after`` (inclusive) and ``before``
    (exclusive): see :meth:`DocumentCatalog.query`. ``sort`` orders the ``top_k`` best passages.
    What is not given is the ``agent``'s, else the settings'; an agent's filters apply in addition
    to the call's. Documents that the ``role`` may not see are treated as missing.

    Examples:
        >>> from catalog.search_v2 import search
        >>> results = search("rotate keys", dataset="notes", filters="tag=ops", after="2020")
        >>> [result.path for result in results]
        ['keys.md']
    """

    query: str = field(
        metadata=about('Words, "quoted phrases", -exclusions, or typed parts: lex: … / vec: …')
    )
    _: KW_ONLY
    sort: Order | None = optional(
        None, "best (first) or date (newest document first). Default: best."
    )
    recency_half_life_days: float | None = optional(
        None,
        "Age of a document in days at which its passages have half their score; 0: no decay. "
        "Default: the setting's.",
        (0, 100_000),
        flags="--recency-half-life-days --half-life",
    )
    explain: bool = optional(False, "Explain each score.")
    strict: bool = optional(False, STRICT)
    all_copies: bool = optional(False, "Show copies of a text as separate results.")
    doc_ids: Iterable[str] | None = optional(
        None, "Only these documents: ids or paths.", json=list[str] | None, python_only=True
    )
    compare_with_v1: bool = optional(
        False, "Ask the baseline as well, and show the differences.", python_only=True
    )


@dataclass(frozen=True)
class AskParams(_Narrowed, _Answerer):
    """A question to be answered from documents, or not at all; the rest is as for a search.

    Examples:
        >>> from catalog.search_v2 import ask
        >>> print(ask("when do backups run", dataset="notes", docs=["guides/*"]).text)
        These documents may not answer it. Closest:
        Backups run at midnight and are kept for thirty days. [1]
    """

    question: str = field(metadata=about("The question."))
    _: KW_ONLY
    judge: bool | None = optional(
        None, "Let the language model judge the passages. Default: if it takes two seconds at most."
    )
    strict: bool = optional(False, STRICT)


@dataclass(frozen=True)
class GenerateParams(_Narrowed, _Answerer):
    """A document to be made from others, in sections that cite them; the rest is as for ask."""

    kind: ArtifactKind = field(metadata=about("blueprint, pdr, workflow or build-plan."))
    _: KW_ONLY
    topic: str = field(metadata=about("The topic."))
    strict: bool = optional(False, STRICT)


@dataclass(frozen=True)
class GetParams(_Scoped):
    """A document, whole or some of its lines."""

    reference: str = field(
        metadata=about(
            "dataset:path, path or #docid. A suffix selects a part: :12-20 for lines (or pages, "
            "cells, paragraphs), :1:05-1:18 for times."
        )
    )
    _: KW_ONLY
    line_start: int | None = optional(None, "First line (page, cell …), counted from 1.", (1, None))
    line_end: int | None = optional(None, "Last line (page, cell …), included.", (1, None))
    max_bytes: int | None = optional(
        None, "A longer text, or one over 10 MB, is cut after a whole line.", (1, MAX_TEXT_BYTES)
    )


@dataclass(frozen=True)
class MultiGetParams(_Scoped):
    """Several documents, or parts of them, of 10 MB of text together at most."""

    patterns: list[str] = field(
        metadata=about(
            "Paths, globs or #docids. A citation, link or reference with a place selects that "
            "part.",
            max_items=MAX_DOCUMENTS,
        )
    )
    _: KW_ONLY
    limit: int = optional(DEFAULT_LIMIT, "Maximum number of documents.", (1, MAX_DOCUMENTS))
    max_bytes: int = optional(
        65_536, "Larger documents are named, without their text.", (1, MAX_TEXT_BYTES)
    )


@dataclass(frozen=True)
class BrowseParams(_Scoped):
    """A look at which documents there are."""

    query: str | None = optional(None, "Words in titles, names, summaries or tags.")
    _: KW_ONLY
    file_type: str | None = optional(None, FILE_TYPE)
    name: str | None = optional(None, NAME)
    tags: Iterable[str] = optional(
        (), "Only documents with all these tags.", max_items=50, flags="--tag", json=list[str]
    )
    containing: Iterable[str] = optional(
        (),
        "Only documents with a passage that contains this word or phrase (of a list: all of "
        "them). The count is exact, and the places are shown.",
        max_items=20,
        json=list[str],
    )
    filters: object = optional(None, CONDITIONS)
    after: str | None = optional(None, AFTER)
    before: str | None = optional(None, BEFORE)
    sort: Sort = optional(
        "best",
        "best (by the query; without one by name), name, modified (newest first) or size "
        "(largest first).",
    )
    limit: int = optional(
        DEFAULT_LIMIT, "How many documents.", (1, MAX_DOCUMENTS), flags="--limit --top-k -k -n"
    )
    offset: int = optional(0, "Number of documents to skip.", (0, MAX_OFFSET))


@dataclass(frozen=True, kw_only=True)
class StatusParams(Params):
    """Parameters of ``status``."""

    role: str | None = optional(None, ROLE)


@cache
def param_fields(kind: type[Params]) -> tuple[Param, ...]:
    """Return the parameters of a verb in order, with the ones for Python only."""
    hints, own = get_type_hints(kind), fields(kind)
    has_docs = any(one.name == "docs" for one in own)
    parameters = []
    for one in own:
        others = _PATH.split() if one.name == "name" and has_docs else ()
        param = replace(
            one.metadata["param"],
            name=one.name,
            type=hints[one.name],
            default=... if one.default is MISSING else one.default,
            is_positional=not one.kw_only,
            aliases=tuple(name for name in _ALIASES.get(one.name, ()) if name not in others),
        )
        parameters.append(param)
    return tuple(sorted(parameters, key=lambda one: (not one.is_positional, not one.is_required)))


def edge_fields(kind: type[Params]) -> list[Param]:
    """Return the parameters that the edges outside Python take, with the types they take."""
    parameters = [one for one in param_fields(kind) if not one.python_only]  # type: ignore[arg-type]
    return [replace(one, type=one.json or one.type) for one in parameters]
