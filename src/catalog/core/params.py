"""What can be asked of a store: the parameters of each verb, defined once.

Python, the command line, HTTP and agents' tools derive their arguments, defaults, bounds and help
from the classes here. To add a parameter, add a field; then use it where it acts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Literal, get_args

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


DatasetChoice = str | list[str] | None
"""The name of a dataset, those of several that are searched as one, or ``None``: all there are."""

Dataset = Annotated[
    DatasetChoice,
    Param(
        "Only these datasets; all if left out.",
        flags=("--dataset", "-d"),
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
After = Annotated[
    str | None,
    Param(
        "Only documents dated on or after YYYY-MM-DD, YYYY-MM or YYYY: by the date they say they "
        "were modified or else created, else their file's."
    ),
]
Before = Annotated[
    str | None, Param("Only documents dated before that day, month or year, by the same date.")
]


@dataclass(frozen=True)
class SearchParams:
    """A search for passages.

    ``doc_ids`` holds ids or paths: ``None`` is every document, ``[]`` is none, and names of
    documents that are not there count for nothing. ``docs`` names documents as people do, and a
    name that fits none is an error. ``filters``: see ``core.filter_forms.parse_filters``.
    ``after`` (inclusive) and ``before`` (exclusive): see :meth:`DocumentCatalog.query`.
    ``top_k``, ``rerank`` and ``expand`` default to the settings.
    """

    query: Annotated[
        str, Param('Words, "quoted phrases", -exclusions, or typed parts: lex: … / vec: …')
    ]
    _: KW_ONLY
    dataset: Dataset = None
    top_k: Annotated[
        int | None,
        Param(
            "How many passages, those told with an earlier one not counted; left out: top_k of the "
            "settings, 10 or a preset's.",
            least=1,
            most=1000,
            flags=("--top-k", "-k"),
        ),
    ] = None
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
    after: After = None
    before: Before = None
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

    reference: Annotated[
        str,
        Param(
            "dataset:path, path or #docid; :12-20 after it picks lines, or else pages, cells, "
            "paragraphs: what its citations count. :1:05-1:18 picks times."
        ),
    ]
    _: KW_ONLY
    dataset: Dataset = None
    line_start: Annotated[
        int | None, Param("First line (page, cell …), counted from 1.", least=1)
    ] = None
    line_end: Annotated[
        int | None, Param("Last line (page, cell …), itself included.", least=1)
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
        ),
    ]
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
    after: After = None
    before: Before = None
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
