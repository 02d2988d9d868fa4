"""FTS5 MATCH texts of ours as values that Postgres takes for its own ``tsquery``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sqlalchemy import String, TypeDecorator
from sqlalchemy.engine import Dialect

from catalog.store.fts_tokens import cut_text

CARD_COLUMNS = {"title": "A", "name": "B", "headings": "C", "summary": "D", "metadata": "C"}
"""The columns of the full text of cards, each with the label of its words in a ``tsvector``."""
_PART = re.compile(r'(?:\{([^{}]*+)\}\s*+:\s*+)?"((?:[^"]|"")*)"')


class MatchText(TypeDecorator[str]):
    """An FTS5 MATCH text of ours, for Postgres: phrases, any of which may match."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the same as a ``tsquery``."""
        del dialect
        return None if value is None else to_query(value)


Match = String().with_variant(MatchText(), "postgresql")


def to_query(match: str) -> str:
    """Return a MATCH text as a ``tsquery``; empty, which nothing matches, without a word."""
    return " | ".join(to_queries(match))


def to_queries(match: str) -> Iterator[str]:
    """Yield each phrase of a MATCH text as a ``tsquery``."""
    for columns, words in phrases_of(match):
        label = "".join(sorted({CARD_COLUMNS[name] for name in columns.split()}))
        suffix = f":{label}" if label else ""
        yield f"({' <-> '.join(f'{quote_word(word)}{suffix}' for word in words)})"


def phrases_of(match: str) -> Iterable[tuple[str, list[str]]]:
    """Return the phrases of a MATCH text, each with the columns it is to be in."""
    for columns, phrase in _PART.findall(match):
        words = cut_text(phrase.replace('""', '"'))
        if words:
            yield columns, words


def quote_word(word: str) -> str:
    """Return a word as ``tsvector`` and ``tsquery`` have it, whatever it holds."""
    doubled = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"
