"""What can be asked of a store: the parameters of each verb, defined once.

Python, the command line, HTTP and agents' tools derive their arguments, defaults, bounds and help
from the classes here. To add a parameter, add a field; then use it where it acts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal, get_args

from catalog.core.param_types import (
    COUNT_ALIASES,
    NAME_ALIASES,
    PATH_ALIASES,
    QUERY_ALIASES,
    After,
    AgentHint,
    AgentName,
    ArtifactKind,
    Before,
    Conditions,
    Dataset,
    Docs,
    Expand,
    FileType,
    ModelProvider,
    Name,
    Param,
    RecencyHalfLife,
    Rerank,
    Role,
    SearchMode,
    SearchOrder,
    SimilarityThreshold,
    Strict,
    TopK,
)

Sort = Literal["best", "name", "modified", "size"]
SORTS: tuple[Sort, ...] = get_args(Sort)
DEFAULT_LIMIT, MAX_DOCUMENTS = 20, 1000  # documents in one result
MAX_OFFSET = 10_000_000
MAX_TEXT_BYTES = 10_000_000


@dataclass(frozen=True)
class SearchParams:
    """A search for passages.

    ``doc_ids`` holds ids or paths: ``None`` is every document, ``[]`` is none, and names of
    documents that are not there count for nothing. ``docs`` names documents as people do, and a
    name that fits none is an error. ``filters``: see ``core.filter_forms.parse_filters``.
    ``after`` (inclusive) and ``before`` (exclusive): see :meth:`DocumentCatalog.query`.
    ``sort`` orders the ``top_k`` best passages; those of documents without a date come last.
    ``top_k``, ``rerank``, ``expand``, ``similarity_threshold`` and ``recency_half_life_days``
    default to the ``agent``'s, and those to the settings; ``mode`` and ``sort`` to the agent's,
    else hybrid and best. What an agent narrows holds besides what the call does. ``role`` is part
    of scope: what it does not see is as though it were not there.
    """

    query: Annotated[
        str,
        Param(
            'Words, "quoted phrases", -exclusions, or typed parts: lex: … / vec: …',
            aliases=("q", *QUERY_ALIASES),
        ),
    ]
    _: KW_ONLY
    dataset: Dataset = None
    agent: AgentName = None
    top_k: TopK = None
    mode: SearchMode = None
    docs: Docs = None
    file_type: FileType = None
    name: Name = None
    filters: Conditions = None
    after: After = None
    before: Before = None
    rerank: Rerank = None
    expand: Expand = None
    similarity_threshold: SimilarityThreshold = None
    sort: SearchOrder = None
    recency_half_life_days: RecencyHalfLife = None
    explain: Annotated[bool, Param("Tell how each score came about.")] = False
    strict: Strict = False
    all_copies: Annotated[
        bool, Param("Give each copy of a text a result of its own, not one for all.")
    ] = False
    doc_ids: Annotated[
        Iterable[str] | None, Param("Only these documents: ids or paths.", python_only=True)
    ] = None
    compare_with_v1: Annotated[
        bool, Param("Ask the baseline too, and tell the differences.", python_only=True)
    ] = False
    role: Annotated[
        str | None,
        Param("Only documents of this role's confidentiality levels.", python_only=True),
    ] = None


@dataclass(frozen=True)
class AskParams:
    """A question to be answered from documents, or not at all; the rest is as for a search."""

    question: Annotated[
        str, Param("The question.", aliases=("q", "query", "query_text", "text", "prompt"))
    ]
    _: KW_ONLY
    dataset: Dataset = None
    agent: AgentName = None
    agent_hint: AgentHint = None
    role: Role = None
    model: ModelProvider = None
    top_k: TopK = None
    mode: SearchMode = None
    docs: Docs = None
    file_type: FileType = None
    name: Name = None
    filters: Conditions = None
    after: After = None
    before: Before = None
    rerank: Rerank = None
    expand: Expand = None
    similarity_threshold: SimilarityThreshold = None
    strict: Strict = False


@dataclass(frozen=True)
class GenerateParams:
    """A document to be made from others, in sections that cite them; the rest is as for ask."""

    kind: Annotated[ArtifactKind, Param("blueprint, pdr, workflow or build-plan.")]
    _: KW_ONLY
    topic: Annotated[str, Param("What it is about.", aliases=("subject", "about", "question"))]
    dataset: Dataset = None
    agent: AgentName = None
    agent_hint: AgentHint = None
    role: Role = None
    model: ModelProvider = None
    top_k: TopK = None
    mode: SearchMode = None
    docs: Docs = None
    file_type: FileType = None
    name: Name = None
    filters: Conditions = None
    after: After = None
    before: Before = None
    rerank: Rerank = None
    expand: Expand = None
    similarity_threshold: SimilarityThreshold = None
    strict: Strict = False


@dataclass(frozen=True)
class GetParams:
    """A document, whole or some of its lines."""

    reference: Annotated[
        str,
        Param(
            "dataset:path, path or #docid; :12-20 after it picks lines, or else pages, cells, "
            "paragraphs: what its citations count. :1:05-1:18 picks times.",
            aliases=(
                *("ref", "doc", "docid", "doc_id", "document", "document_id", "id", "source"),
                *("source_doc_id", "citation", "uri", "name", "filename", *PATH_ALIASES),
            ),
        ),
    ]
    _: KW_ONLY
    dataset: Dataset = None
    line_start: Annotated[
        int | None,
        Param(
            "First line (page, cell …), counted from 1.",
            least=1,
            aliases=("start_line", "start", "from_line", "first_line", "line_from", "line"),
        ),
    ] = None
    line_end: Annotated[
        int | None,
        Param(
            "Last line (page, cell …), itself included.",
            least=1,
            aliases=("end_line", "end", "to_line", "last_line", "line_to"),
        ),
    ] = None
    max_bytes: Annotated[
        int | None,
        Param("More than this, or 10 MB, is cut after a whole line.", least=1, most=MAX_TEXT_BYTES),
    ] = None


@dataclass(frozen=True)
class MultiGetParams:
    """Several documents, or parts of them, of 10 MB of text together at most."""

    patterns: Annotated[
        list[str],
        Param(
            "Paths, globs or #docids; of a citation, link or reference with a place that part.",
            max_items=MAX_DOCUMENTS,
            aliases=(
                "pattern",
                "glob",
                "references",
                "reference",
                "docids",
                "docs",
                "documents",
                *PATH_ALIASES,
            ),
        ),
    ]
    _: KW_ONLY
    dataset: Dataset = None
    limit: Annotated[
        int,
        Param(
            "How many documents at most.",
            least=1,
            most=MAX_DOCUMENTS,
            aliases=("top_k", *COUNT_ALIASES),
        ),
    ] = DEFAULT_LIMIT
    max_bytes: Annotated[
        int, Param("A document larger than this is named, not given.", least=1, most=MAX_TEXT_BYTES)
    ] = 65_536


@dataclass(frozen=True)
class BrowseParams:
    """A look at which documents there are."""

    query: Annotated[
        str | None,
        Param("Words of titles, names, summaries and tags.", aliases=("q", *QUERY_ALIASES)),
    ] = None
    _: KW_ONLY
    dataset: Dataset = None
    file_type: FileType = None
    name: Annotated[
        str | None,
        Param(
            "Only documents whose path, title or recording holds this text.",
            aliases=(*NAME_ALIASES, *PATH_ALIASES),
        ),
    ] = None
    tags: Annotated[
        Iterable[str],
        Param(
            "Only documents with all these tags.",
            max_items=50,
            flags=("--tag",),
            json=list[str],
            aliases=("tag", "label", "labels"),
        ),
    ] = ()
    filters: Conditions = None
    after: After = None
    before: Before = None
    sort: Annotated[
        Sort,
        Param(
            "best (by the query, without one by name), name, modified (newest first) or size "
            "(largest first).",
            aliases=("sort_by", "order_by", "order"),
        ),
    ] = "best"
    limit: Annotated[
        int,
        Param(
            "How many documents.",
            least=1,
            most=MAX_DOCUMENTS,
            flags=("--limit", "--top-k", "-k", "-n"),
            aliases=("top_k", *COUNT_ALIASES),
        ),
    ] = DEFAULT_LIMIT
    offset: Annotated[
        int,
        Param("How many to pass over first.", least=0, most=MAX_OFFSET, aliases=("skip", "start")),
    ] = 0


@dataclass(frozen=True)
class StatusParams:
    """What the store holds; there is nothing to say."""


Params = (
    SearchParams
    | AskParams
    | GenerateParams
    | GetParams
    | MultiGetParams
    | BrowseParams
    | StatusParams
)
