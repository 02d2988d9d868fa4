"""Expressions and column types that SQLite and Postgres write differently.

Each expression means the same in both. SQLite's form comes first; its query plans were measured.
Some forms in Postgres are functions that :mod:`catalog.store.postgres_schema` creates.

Postgres compares these texts by their bytes, like SQLite and Python, whatever the language of the
database. Numbers have 64 bits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import BigInteger, Column, Integer, Label, String, Text, TypeDecorator, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Float, NullType
from sqlalchemy.types import Integer as AnyInteger

from catalog.store.postgres_schema import ACCENTS, CONFIGURATION

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, TableValuedAlias
    from sqlalchemy.engine import Dialect
    from sqlalchemy.types import TypeEngine


_NUL, _MARK = "\U0010fffe", "\U0010ffff"  # noncharacters, which ordinary text never has
_SPECIAL = re.compile(f"[\0{_NUL}{_MARK}]")
_WRITTEN = re.compile(f"{_MARK}(.)|{_NUL}", re.DOTALL)


class EscapedText(TypeDecorator[str]):
    """Text for a database that cannot store U+0000, which is replaced by another character.

    Reading restores every text exactly.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the database's own type, ordered by bytes."""
        return dialect.type_descriptor(Text(collation="C"))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text in its stored form."""
        del dialect
        return None if value is None else escape(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text that was stored."""
        del dialect
        return None if value is None else unescape(value)


def escape(text: str) -> str:
    """Return the text without U+0000; :func:`unescape` restores it."""
    if "\0" not in text and _NUL not in text and _MARK not in text:
        return text
    return _SPECIAL.sub(lambda found: _NUL if found[0] == "\0" else _MARK + found[0], text)


def unescape(text: str) -> str:
    """Restore a text that :func:`escape` returned."""
    if _NUL not in text and _MARK not in text:
        return text
    return _WRITTEN.sub(lambda found: found[1] or "\0", text)


def needs_escape(text: str) -> bool:
    """Return whether Postgres stores the text in escaped form."""
    return _SPECIAL.search(text) is not None


PlainText = Text().with_variant(EscapedText(), "postgresql")
Name = String().with_variant(EscapedText(), "postgresql")
Letter = String(1).with_variant(EscapedText(), "postgresql")
Number = Integer().with_variant(BigInteger(), "postgresql")


SHORT = 100  # characters: an entry of an index of Postgres holds at most 2,704 bytes


class _Form(FunctionElement[Any]):
    """An expression that each database writes in its own way.

    It has no type by default: a boolean type would make SQLAlchemy add ``= 1`` for SQLite.
    """

    inherit_cache = True
    type: TypeEngine[Any] = NullType()


def _spell(form: type[_Form], sqlite: str, postgres: str) -> None:
    """Set how a form is written in both databases; ``{0}`` is its first part, and so on."""

    def write(template: str) -> Any:
        def compiled(element: _Form, compiler: SQLCompiler, **options: Any) -> str:
            parts = (compiler.process(part, **options) for part in element.clauses)
            return template.format(*parts)

        return compiled

    compiles(form)(write(sqlite))
    compiles(form, "postgresql")(write(postgres))


class _Folded(_Form):
    inherit_cache = True
    type = PlainText


class _Position(_Form):
    inherit_cache = True
    type = Integer()


class _IgnoringCase(_Form):
    inherit_cache = True
    type = PlainText


class _Short(_Form):
    inherit_cache = True
    type = PlainText


class _Among(_Form):
    inherit_cache = True


class _Items(_Form):
    inherit_cache = True


class _Pairs(_Form):
    inherit_cache = True


class _FirstNumber(_Form):
    inherit_cache = True
    type = Integer()


class _Bytes(_Form):
    inherit_cache = True


class _NumberText(_Form):
    inherit_cache = True
    type = PlainText


class _Likely(_Form):
    inherit_cache = True


class _Phrase(_Form):
    inherit_cache = True


class _WebQuery(_Form):
    inherit_cache = True


_spell(_Folded, "casefold({0})", "catalog_casefold({0})")
_spell(_Position, "instr({0}, {1})", "strpos({0}, {1})")
_spell(_IgnoringCase, "{0} COLLATE NOCASE", '(lower({0} COLLATE "C"))')
_spell(_Short, "{0}", f"(left({{0}}, {SHORT}))")
_spell(_Items, "json_each({0})", "catalog_json_items({0})")
_spell(_Pairs, "json_each({0})", "catalog_json_pairs({0})")
_spell(
    _FirstNumber,
    "json_extract({0}, '$.numbers[0]')",
    "CAST(CAST({0} AS jsonb) #>> '{{numbers,0}}' AS bigint)",
)
_spell(_Bytes, "CAST({0} AS BLOB)", "convert_to({0}, 'UTF8')")
_spell(
    _NumberText,
    "CAST({0} AS TEXT)",
    "CASE WHEN {0} = trunc({0}) AND abs({0}) < 1e15 THEN CAST(CAST({0} AS bigint) AS text) || '.0'"
    " ELSE CAST({0} AS text) END",
)
_spell(
    _WebQuery,
    "{0}",
    # Endings of words over 500 characters are left out: Postgres refuses so long a word.
    f"websearch_to_tsquery('{CONFIGURATION}', regexp_replace(regexp_replace(normalize({{0}}, NFD), "
    f"'{ACCENTS}', '', 'g'), '(([^\\s\"]{{{{250}}}}){{{{2}}}})[^\\s\"]+', '\\1', 'g'))",
)
_spell(
    _Phrase,
    "({0} IN (SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH {1}))",
    "({0} IN (SELECT seq FROM chunks WHERE words @@ {1}))",
)
_spell(_Likely, "likely({0})", "({0})")


@compiles(_Among)
def _write_among(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(part, **options) for part in element.clauses)
    return f"({column} IN (SELECT value FROM json_each({values})))"  # noqa: S608 - parts are compiled


@compiles(_Among, "postgresql")
def _write_among_postgres(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    # An array, because the planner expects few rows from it, but a hundred from a subselect.
    column, values = (compiler.process(part, **options) for part in element.clauses)
    kind = next(iter(element.clauses)).type
    is_number = isinstance(kind, AnyInteger | Float)
    as_kind = ("bigint" if isinstance(kind, AnyInteger) else "float8") if is_number else "text"
    items = f"jsonb_array_elements_text(CAST({values} AS jsonb))"
    return f"({column} = ANY (ARRAY(SELECT CAST(item AS {as_kind}) FROM {items} AS item)))"  # noqa: S608


def casefolded(text: ColumnElement[Any]) -> ColumnElement[str]:
    """Return the case-folded text, as Python folds it."""
    return cast("ColumnElement[str]", _Folded(text))


def contains(text: ColumnElement[Any], part: str | float) -> ColumnElement[bool]:
    """Require that the text contains the part literally."""
    return cast("ColumnElement[int]", _Position(text, literal(str(part), PlainText))) > 0


def ignoring_case(text: ColumnElement[str]) -> ColumnElement[str]:
    """Return a sort key that ignores the case of ASCII letters."""
    return cast("ColumnElement[str]", _IgnoringCase(text))


def shortened(text: ColumnElement[Any]) -> ColumnElement[str]:
    """Return the part of a text that an index stores; in Postgres this is its beginning."""
    return cast("ColumnElement[str]", _Short(text))


def among_json(column: ColumnElement[Any], values: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return ``column IN values``; the values are a JSON list."""
    return cast("ColumnElement[bool]", _Among(column, values))


def json_items(array: ColumnElement[Any]) -> TableValuedAlias:
    """Return the items of a JSON list as rows of ``key``, from 0, and ``value``."""
    return _Items(array).table_valued(Column("key", Integer), "value")


def json_pairs(table: ColumnElement[Any]) -> TableValuedAlias:
    """Return the pairs of a JSON object as rows of ``key`` and ``value``, both texts."""
    return _Pairs(table).table_valued("key", "value")


def first_number(places: ColumnElement[Any]) -> ColumnElement[int]:
    """Return the first of the ``numbers`` of stored places, NULL without any."""
    return cast("ColumnElement[int]", _FirstNumber(places))


def as_bytes(text: ColumnElement[str]) -> ColumnElement[bytes]:
    """Return the text's bytes in UTF-8, even if they are damaged."""
    return cast("ColumnElement[bytes]", _Bytes(text))


def labelled_bytes(text: Column[Any]) -> Label[bytes]:
    """Return the bytes of a column's text under the column's name."""
    return as_bytes(text).label(text.name)


def number_text(number: ColumnElement[float]) -> ColumnElement[str]:
    """Return a number as text; whole numbers have one decimal, as in ``3.0``."""
    return cast("ColumnElement[str]", _NumberText(number))


def likely(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition with a hint to SQLite that most rows meet it."""
    return cast("ColumnElement[bool]", _Likely(condition))


def web_query(match: ColumnElement[str]) -> ColumnElement[Any]:
    """Return one of our MATCH texts as it is, in Postgres as a ``tsquery``."""
    return cast("ColumnElement[Any]", _WebQuery(match))


def holds_phrase(seq: ColumnElement[int], match: str) -> ColumnElement[bool]:
    """Require that the passage with this row number matches one of our FTS5 MATCH texts."""
    return cast("ColumnElement[bool]", _Phrase(seq, web_query(literal(match, PlainText))))
