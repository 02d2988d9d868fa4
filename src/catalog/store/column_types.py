"""The types of the columns: as they always were in SQLite, and what holds the same in Postgres.

In Postgres a text is compared by its bytes, as SQLite and Python do, whatever the database's own
language is; a number has 64 bits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Integer, String, Text, TypeDecorator

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect
    from sqlalchemy.types import TypeEngine

_NUL, _MARK = "\U0010fffe", "\U0010ffff"  # noncharacters: no text of a person holds one
_SPECIAL = re.compile(f"[\0{_NUL}{_MARK}]")
_WRITTEN = re.compile(f"{_MARK}(.)|{_NUL}", re.DOTALL)


class EscapedText(TypeDecorator[str]):
    """Text for a database that cannot store U+0000: another character stands for it.

    What is read is what was written, for any text.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the database's own type, ordered by bytes."""
        return dialect.type_descriptor(Text(collation="C"))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text as it is stored."""
        del dialect
        return None if value is None else escape(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text that was stored."""
        del dialect
        return None if value is None else unescape(value)


def escape(text: str) -> str:
    """Return a text without U+0000 from which :func:`unescape` makes this one."""
    if "\0" not in text and _NUL not in text and _MARK not in text:
        return text
    return _SPECIAL.sub(lambda found: _NUL if found[0] == "\0" else _MARK + found[0], text)


def unescape(text: str) -> str:
    """Return the text of which :func:`escape` made this one."""
    if _NUL not in text and _MARK not in text:
        return text
    return _WRITTEN.sub(lambda found: found[1] or "\0", text)


def needs_escape(text: str) -> bool:
    """Tell whether a text is stored as another one in Postgres."""
    return _SPECIAL.search(text) is not None


PlainText = Text().with_variant(EscapedText(), "postgresql")
Name = String().with_variant(EscapedText(), "postgresql")
Letter = String(1).with_variant(EscapedText(), "postgresql")
Number = Integer().with_variant(BigInteger(), "postgresql")
