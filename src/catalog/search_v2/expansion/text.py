"""A line of an expansion, and how texts are compared and counted."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import get_args

from catalog.core.query import Kind

KINDS: tuple[Kind, ...] = get_args(Kind)
# Two letters of a script that puts no spaces between words count as a word.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, slots=True)
class ExpansionLine:
    """One thing to ask beside the query: words, a question, or a passage that might answer it."""

    kind: Kind
    text: str


def one_line(text: str) -> str:
    """Printable text with single spaces; control, format and unassigned characters go."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def normalised(text: str) -> str:
    """NFKC, case folded, without punctuation, single spaces: equal for texts that say the same."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    plain = (" " if unicodedata.category(one)[0] in "PZC" else one for one in folded)
    return " ".join("".join(plain).split())


def word_count(text: str) -> int:
    """Words between spaces, plus one for every two letters of scripts without spaces."""
    return len(text.split()) + len(_UNSPACED.findall(text)) // 2
