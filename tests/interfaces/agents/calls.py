"""Calls as models might make them: good, missing, too much, of a wrong type, huge, hostile."""

import random
from collections.abc import Iterator
from typing import Any

from catalog.interfaces.tools import TOOLS

WORDS = ("keys", "kettle", "rotate the keys", "batch normalisation", "bread degrees", "zebra")
HOSTILE = (
    "\x00", "\ud800 lone", "\u202ereversed\u202c", "\x1b]0;title\x07\x1b[31m",
    '"; DROP TABLE documents; --', "NEAR(keys, kettle) OR *", '"unclosed phrase -', "%_\\[a-z]*?",
    "../../etc/passwd", "</documents-0000000000000000>", "lex: keys / vec:", "🔑" * 30,
    "e\u0301" * 70, "".join(map(chr, range(0x3B1, 0x3B1 + 24))) * 8, "\n\n", "",
)  # fmt: skip
HUGE = ("keys " * 4_000, "k" * 50_000, "".join(map(str, range(5_000))))
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 3, 10**6, 10**30, 2.0, 2.5, float("nan"), float("inf"), 1e300,
    [], ["keys.md"], ["", None], [[]], [1, 2], {}, {"a": 1}, {"keys": ["x" * 90]}, b"bytes",
)  # fmt: skip
GOOD: dict[str, tuple[Any, ...]] = {
    "query": WORDS,
    "reference": ("keys.md", "notes:keys.md:4-8", "recipes/bread.txt:1", "nowhere.md", "#0123abcd"),
    "patterns": ("*.md", "keys.md,paper.pdf", ["**/*.txt", "deck.pptx"], "nothing*", "*"),
    "dataset": ("notes", "notes", "notes", "elsewhere"),
    "docs": ("*.md", ["keys.md", "paper.pdf"], [], "talks/", "none.md"),
    "filters": ("tag=ops", ["page>=1"], ["file_type=md", "tag!=x"], "nofield=1", "=", []),
    "file_type": ("pdf", "markdown", ".TXT", "video", "zip"),
    "file_type_filter": ("pdf", "slides", "python", "zip"),
    "name": ("kettle", "rotate", "keys", "%"),
    "doc_name_filter": ("rotate", "PAPER", "nobody"),
    "tags": ("ops", ["ops", "security"], "none, such", []),
    "after": ("2001-01-01", "2999-01-01", "yesterday"),
    "before": ("2999-01-01", "2001-01-01", "01/02/2003"),
    "sort": ("best", "name", "modified", "size", "oldest"),
    "top_k": (1, 5, 50, 0, 51, 7.0),
    "limit": (1, 3, 100, 101),
    "offset": (0, 2, 1000, -1),
    "line_start": (1, 3, 0, 10_000),
    "line_end": (2, 4, 10_000),
    "max_bytes": (1_000, 65_536, 1, 10**9),
    "explain": (True, False),
    "rerank": (False, True),
    "expand": (None, False, True),
}


def generated(count: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """So many calls, the same for the same seed: a tool and its arguments."""
    drawn = random.Random(seed)
    names = sorted(TOOLS.keys() - {"ask"})
    for number in range(count):
        name = names[number % len(names)]
        yield name, dict(_arguments(name, drawn))


def _arguments(tool: str, drawn: random.Random) -> Iterator[tuple[str, Any]]:
    wildness = drawn.choice((0.0, 0.0, 0.1, 0.5))
    for name, field in TOOLS[tool].parameters.items():
        is_given = field.is_required and drawn.random() > wildness / 4
        if is_given or drawn.random() < 0.25:
            yield name, _value(name, wildness, drawn)
    if drawn.random() < wildness / 4:
        yield drawn.choice((*HOSTILE, "extra", "x" * 300)), 1


def _value(name: str, wildness: float, drawn: random.Random) -> Any:
    if drawn.random() >= wildness:
        return drawn.choice(GOOD.get(name, WORDS))
    return drawn.choice((*HOSTILE, *HUGE, *ODD))
