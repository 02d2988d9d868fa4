"""What describes a parameter of a verb, and the parameters that several verbs have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

Mode = Literal["lexical", "vector", "hybrid"]
MODES: tuple[Mode, ...] = get_args(Mode)
Order = Literal["best", "date"]
ORDERS: tuple[Order, ...] = get_args(Order)
ArtifactKind = Literal["blueprint", "pdr", "workflow", "build-plan"]
Profile = Literal["cheap", "balanced", "premium"]
KINDS: tuple[ArtifactKind, ...] = get_args(ArtifactKind)
QUERY_ALIASES = ("search_query", "query_text", "question", "text", "keywords", "search")
COUNT_ALIASES = ("k", "n", "count", "num_results", "n_results", "max_results", "results")
NAME_ALIASES = (
    *("doc_name_filter", "name_filter", "doc_name", "document_name", "filename", "file_name"),
    "title",
)
PATH_ALIASES = ("path", "paths", "file", "files", "file_path")


@dataclass(frozen=True, slots=True)
class Param:
    """Describe a parameter.

    ``aliases`` are other names that people and models give it, taken where arguments are JSON.
    ``least`` and ``most`` bound a number, ``max_items`` a list; ``flags`` are its options on
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
    aliases: tuple[str, ...] = ()


DatasetChoice = str | list[str] | None
"""The name of a dataset, those of several that are searched as one, or ``None``: all there are."""

Dataset = Annotated[
    DatasetChoice,
    Param(
        "Only these datasets; all if left out.",
        flags=("--dataset", "--project", "-d"),
        aliases=("datasets", "dataset_name", "dataset_id", "project", "collection", "namespace"),
    ),
]
FileType = Annotated[
    str | None,
    Param(
        "Only documents of this type: pdf, markdown, word, video, audio, …",
        flags=("--type", "--file-type", "-t"),
        aliases=("file_type_filter", "type", "doc_type", "document_type", "extension", "format"),
    ),
]
Name = Annotated[
    str | None,
    Param(
        "Only documents whose path, title or recording holds this text.",
        aliases=NAME_ALIASES,
    ),
]
Conditions = Annotated[
    object,
    Param(
        'Conditions that must all hold, such as "tag=ops" or "page>=3".',
        flags=("--filter",),
        json=list[str | dict[str, Any]] | dict[str, Any] | None,
        json_help='Several in a list, or {"tag": "ops"}.',
        aliases=("filter", "where", "conditions"),
    ),
]
After = Annotated[
    str | None,
    Param(
        "Only documents dated on or after YYYY-MM-DD, YYYY-MM or YYYY: by the date they say they "
        "were modified or else created, else their file's.",
        aliases=("since", "after_date", "date_after", "modified_after", "from_date", "start_date"),
    ),
]
Before = Annotated[
    str | None,
    Param(
        "Only documents dated before that day, month or year, by the same date.",
        aliases=("before_date", "date_before", "modified_before"),
    ),
]


TopK = Annotated[
    int | None,
    Param(
        "How many passages, those told with an earlier one not counted; left out: top_k of the "
        "settings, 10 or a preset's.",
        least=1,
        most=1000,
        flags=("--top-k", "--limit", "-k", "-n"),
        aliases=("limit", *COUNT_ALIASES),
    ),
]
SearchMode = Annotated[
    Mode | None,
    Param(
        "lexical (words), vector (meaning) or hybrid, as if left out.",
        aliases=("search_mode", "search_type"),
    ),
]
SearchOrder = Annotated[
    Order | None,
    Param(
        "best (best first, as if left out) or date (of their documents, newest first).",
        aliases=("sort_by", "order_by", "order"),
    ),
]
RecencyHalfLife = Annotated[
    float | None,
    Param(
        "Days in which the score of a passage halves as its document ages; 0: never; left out: as "
        "the settings say.",
        least=0,
        most=100_000,
        flags=("--recency-half-life-days", "--half-life"),
        aliases=("half_life", "recency_half_life", "half_life_days"),
    ),
]
SimilarityThreshold = Annotated[
    float | None,
    Param(
        "Leave out passages of a lower relevance, 0 to 1; left out: as the settings say.",
        least=0,
        most=1,
        flags=("--similarity-threshold", "--threshold"),
        aliases=("threshold", "min_score", "min_relevance", "score_threshold"),
    ),
]
Docs = Annotated[
    list[str] | None,
    Param(
        "Only these documents: paths, globs or #docids.",
        flags=("--doc",),
        json_help="[] is none of them.",
        aliases=("doc", "documents", "document", *PATH_ALIASES),
    ),
]
Rerank = Annotated[bool | None, Param("Let a second model read the best passages.")]
Expand = Annotated[bool | None, Param("Let a language model reword the query.")]
Strict = Annotated[bool, Param("Fail when a stage fails, rather than go on without.")]
AgentName = Annotated[
    str | None,
    Param("As this agent: one that 'catalog agents' lists.", aliases=("agent_name",)),
]
AgentHint = Annotated[
    str | None,
    Param("Only documents that are meant for this agent: those with this agent_hint."),
]
ModelProvider = Annotated[
    str | None,
    Param("openai, llama_cpp, module:function, or none, in place of IDX_LLM__PROVIDER."),
]
Role = Annotated[
    str | None,
    Param(
        "Answer as for this role: from documents of its confidentiality levels alone "
        "(IDX_ANSWERS__ROLES)."
    ),
]
