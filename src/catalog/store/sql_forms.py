"""Expressions and column types that SQLite and Postgres write differently, with the same meaning.

SQLite's query plans were measured. Some forms in Postgres are functions that
:mod:`catalog.store.postgres` creates. Postgres compares these texts by their bytes, like
SQLite and Python, whatever the language of the database. Numbers have 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, Connection, Integer, Table, Text, TypeDecorator, literal
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import Float, NullType
from sqlalchemy.types import Integer as AnyInteger

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, TableValuedAlias
    from sqlalchemy.engine import Dialect
    from sqlalchemy.types import TypeEngine

CONFIGURATION = "catalog_words"  # of text search in Postgres
ACCENTS = r"[\u0300-\u036f]"
SHORT = 100  # characters: an entry of an index of Postgres holds at most 2,704 bytes


class _Bytewise(TypeDecorator[str]):
    """Text ordered by bytes; U+FFFD stands for U+0000, which Postgres refuses, in what is asked."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text(collation="C"))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else value.replace("\0", "\ufffd")


PlainText = Text().with_variant(_Bytewise(), "postgresql")
Number = Integer().with_variant(BigInteger(), "postgresql")


def _form(
    sqlite: str, postgres: str, kind: TypeEngine[Any] | None = None
) -> Callable[..., FunctionElement[Any]]:
    """Return what makes an expression from its parts, written as ``{0}``, ``{1}`` and so on.

    It has no type by default: a boolean type would make SQLAlchemy add ``= 1`` for SQLite.
    """

    class Form(FunctionElement[Any]):
        inherit_cache = True
        type = kind or NullType()

    def write(template: str) -> Any:
        def compiled(element: Form, compiler: SQLCompiler, **options: Any) -> str:
            return template.format(*(compiler.process(it, **options) for it in element.clauses))

        return compiled

    compiles(Form)(write(sqlite))
    compiles(Form, "postgresql")(write(postgres))
    return Form


_items = _form(
    "json_each({0})",
    "(SELECT place - 1 AS key, item AS value FROM jsonb_array_elements_text(CAST({0} AS jsonb)) "
    "WITH ORDINALITY AS items(item, place))",
)
_pairs = _form("json_each({0})", "jsonb_each_text(CAST({0} AS jsonb))")
position = _form("instr({0}, {1})", "strpos({0}, {1})", Integer())
_phrase = _form(
    "({0} IN (SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH {1}))",
    "({0} IN (SELECT seq FROM chunks WHERE words @@ {1}))",
)
_among = {  # an array, because Postgres expects few rows from it, but a hundred from a subselect
    kind: _form(
        "({0} IN (SELECT value FROM json_each({1})))",
        f"({{0}} = ANY (ARRAY(SELECT CAST(item AS {kind}) "  # noqa: S608 - no value is in it
        "FROM jsonb_array_elements_text(CAST({1} AS jsonb)) AS item)))",
    )
    for kind in ("bigint", "float8", "text")
}

casefolded = _form("casefold({0})", "catalog_casefold({0})", PlainText)
"""The text, folded as Python folds it."""
ignoring_case = _form("{0} COLLATE NOCASE", '(lower({0} COLLATE "C"))', PlainText)
"""A sort key that ignores the case of ASCII letters."""
shortened = _form("{0}", f"(left({{0}}, {SHORT}))", PlainText)
"""The part of a text that an index stores; in Postgres this is its beginning."""
first_number = _form(
    "json_extract({0}, '$.numbers[0]')",
    "CAST(CAST({0} AS jsonb) #>> '{{numbers,0}}' AS bigint)",
    Integer(),
)
"""The first of the ``numbers`` of stored places, NULL without any."""
number_text = _form(
    "CAST({0} AS TEXT)",
    "CASE WHEN {0} = trunc({0}) AND abs({0}) < 1e15 THEN CAST(CAST({0} AS bigint) AS text) || '.0'"
    " ELSE CAST({0} AS text) END",
    PlainText,
)
"""A number as text; whole numbers have one decimal, as in ``3.0``."""
likely = _form("likely({0})", "({0})")
"""The condition, with a hint to SQLite that most rows meet it."""
web_query = _form(
    "{0}",
    # Endings of words over 500 characters are left out: Postgres refuses so long a word.
    f"websearch_to_tsquery('{CONFIGURATION}', regexp_replace(regexp_replace(normalize({{0}}, NFD), "
    f"'{ACCENTS}', '', 'g'), '(([^\\s\"]{{{{250}}}}){{{{2}}}})[^\\s\"]+', '\\1', 'g'))",
)
"""One of our MATCH texts as it is, in Postgres as a ``tsquery``."""


def contains(text: ColumnElement[Any], part: str | float) -> ColumnElement[bool]:
    """Require that the text contains the part literally."""
    return position(text, literal(str(part), PlainText)) > 0


def among_json(column: ColumnElement[Any], values: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return ``column IN values``; the values are a JSON list."""
    is_whole, is_number = (isinstance(column.type, kind) for kind in (AnyInteger, Float))
    kind = "bigint" if is_whole else "float8" if is_number else "text"
    return _among[kind](column, values)


def json_items(array: ColumnElement[Any]) -> TableValuedAlias:
    """Return the items of a JSON list as rows of ``key``, from 0, and ``value``."""
    return _items(array).table_valued(Column("key", Integer), "value")


def json_pairs(table: ColumnElement[Any]) -> TableValuedAlias:
    """Return the pairs of a JSON object as rows of ``key`` and ``value``, both texts."""
    return _pairs(table).table_valued("key", "value")


def holds_phrase(seq: ColumnElement[int], match: str) -> ColumnElement[bool]:
    """Require that the passage with this row number matches one of our FTS5 MATCH texts."""
    return _phrase(seq, web_query(literal(match, PlainText)))


def put_rows(
    connection: Connection, table: Table, rows: list[dict[str, Any]], **computed: Any
) -> None:
    """Insert rows with computed values; each replaces the one with the same primary key."""
    put, keys = insert(table).values(computed), table.primary_key.columns  # as in SQLite
    rest = {one.name: put.excluded[one.name] for one in table.columns if one.name not in keys}
    if rows:
        connection.execute(put.on_conflict_do_update(index_elements=keys, set_=rest), rows)
