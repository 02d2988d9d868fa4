"""The tables of the ``tsvector`` engine: the words of each passage, and how rare each word is.

They are in the store's Postgres database, one pair for each dataset and way to cut words. Postgres
itself cuts and counts words; no text leaves the server. One statement adds missing passages and
removes superfluous ones, in a transaction that does not block writers. The comment of the table
then records the state of the dataset and the sizes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    MetaData,
    Table,
    Text,
    case,
    cast,
    func,
    inspect,
    literal,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import (
    ARRAY,
    REGCONFIG,
    TSVECTOR,
    aggregate_order_by,
    array,
    insert,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import UserDefinedType

from catalog.core.errors import ConfigError, EngineLockedError, StoreBusyError
from catalog.core.ids import sha1_hex
from catalog.core.settings.text_search import TsvectorSettings
from catalog.store.database import Database
from catalog.store.engine_types import read_stamp
from catalog.store.postgres import begin_derived
from catalog.store.schema import chunks, document_fields, documents

RULES = 3  # raise it with every change that gives a text other words
_MOST_CHARS = 60_000  # of a passage's text, and of all its fields: a tsvector has at most 1 MB
_MOST_BYTES = 2_046  # of a word in a tsvector
_ACCENTS = "[\u0300-\u036f]"
_NO_WORDS = cast(array([], type_=Text()), ARRAY(Text()))
# The row number is not enough: after an older copy of the store is put back, it is given again.
_KEY = func.hashtextextended(chunks.c.chunk_id + chunks.c.text_hash, cast(0, BigInteger()))
_WORTH_STATISTICS = 1_000  # changed passages after which the planner's statistics are updated


class _OneByte(UserDefinedType[str]):
    """Postgres's type ``"char"`` of one byte, which differs from ``char``."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the type's name in SQL."""
        return '"char"'


class WordCounts(NamedTuple):
    """The number of passages in the tables, and the number of their words."""

    passages: int
    words: int


class TsvectorTables:
    """The words of one dataset's passages, and the number of passages with each word."""

    def __init__(self, database: Database, dataset: str, settings: TsvectorSettings) -> None:
        self._database, self._dataset, self._settings = database, dataset, settings
        made_by = f"{RULES} {settings.config} {sorted(settings.labels.items())}"
        self._family = f"words_{sha1_hex(dataset)[:16]}_"
        name = f"{self._family}{sha1_hex(made_by)[:8]}"
        of_both = MetaData()
        self.words = Table(
            name,
            of_both,
            Column("seq", BigInteger, primary_key=True, autoincrement=False),
            # identifies the content: after a restore, row numbers may be used again
            Column("key", BigInteger, primary_key=True, autoincrement=False),
            Column("words", TSVECTOR, nullable=False),
            Column("length", BigInteger, nullable=False),  # words, with repetitions
            Index(
                f"{name}_words",
                "words",
                postgresql_using="gin",
                postgresql_with={"fastupdate": "off"},
            ),
        )
        self.counts = Table(
            f"{name}_counts",
            of_both,
            Column("lexeme", Text(collation="C"), primary_key=True),
            Column("passages", BigInteger, nullable=False),
        )

    def read_counts(self, connection: Connection) -> WordCounts | None:
        """Return the sizes of the tables, ``None`` unless they are up to date."""
        stamp = read_stamp(connection, self._dataset)
        if stamp is None:
            return WordCounts(0, 0)
        note = self._read_note(connection)
        if note is None or note["state"] != list(stamp):
            return None
        return WordCounts(note["passages"], note["words"])

    def bring_up(self, seconds: float) -> int:
        """Add missing passages and drop removed ones; return the number of changed passages.

        The tables of a removed dataset are dropped. Raises :class:`EngineLockedError` if another
        process updates them for longer than ``seconds``.
        """
        try:
            with begin_derived(
                self._database.engine, self._database.url, self.words.name, seconds
            ) as connection:
                if read_stamp(connection, self._dataset) is None:
                    names = inspect(connection).get_table_names()
                    self._drop(connection, [n for n in names if n.startswith(self._family)])
                    return 0
                if self.read_counts(connection) is not None:
                    return 0
                self._create(connection)
                return self._synchronise(connection)
        except StoreBusyError as error:
            message = f"another process is filling the word table of {self._dataset!r}"
            raise EngineLockedError(message) from error

    def count_differences(self, connection: Connection) -> int:
        """Count the passages whose words are missing, superfluous or different from their text.

        If all are right, count the wrong rows of the table of frequencies. Return 0 for tables that
        are not up to date.
        """
        size = self.read_counts(connection)
        if size is None:
            return 0
        cut, words = self._cut().subquery(), self.words
        is_same = (words.c.seq == cut.c.seq) & (words.c.key == cut.c.key)
        both = cut.outerjoin(words, is_same, full=True)
        is_other = cut.c.words.is_distinct_from(words.c.words)
        different = select(func.count()).select_from(both).where(is_other)
        return connection.scalars(different).one() or self._count_miscounted(connection, size)

    def _count_miscounted(self, connection: Connection, size: WordCounts) -> int:
        words = self.words
        counted = func.ts_stat(str(select(words.c.words).compile(connection)))
        each = counted.table_valued("word", "ndoc", "nentry").render_derived()
        known = select(self.counts).where(self.counts.c.passages != 0).subquery()
        both = each.outerjoin(known, known.c.lexeme == each.c.word, full=True)
        is_wrong = known.c.passages.is_distinct_from(each.c.ndoc)
        wrong = connection.scalars(select(func.count()).select_from(both).where(is_wrong)).one()
        total = select(func.count(), func.coalesce(func.sum(words.c.length), 0))
        return wrong + (WordCounts(*connection.execute(total).one()) != size)

    def clear(self) -> None:
        """Drop the tables; the next update makes them again."""
        with begin_derived(
            self._database.engine, self._database.url, self.words.name, 5.0
        ) as connection:
            self._drop(connection, [self.words.name, self.counts.name])

    def _create(self, connection: Connection) -> None:
        """Make the tables unless they exist, and drop those with words cut in another way."""
        names = inspect(connection).get_table_names()
        if self.words.name in names:
            return
        try:
            connection.scalar(select(self._config()))
        except DBAPIError as error:
            raise ConfigError(
                f"the database has no text search configuration {self._settings.config!r}: "
                "\\dF in psql lists them (IDX_RAG_V2__TSVECTOR__CONFIG)"
            ) from error
        self._drop(connection, [name for name in names if name.startswith(self._family)])
        self.words.metadata.create_all(connection)
        # Ranking reads the words of every match: keep them in the row, up to 8 kB uncompressed.
        alter = f'ALTER TABLE "{self.words.name}"'
        connection.execute(text(f"{alter} SET (toast_tuple_target = 8160)"))
        connection.execute(text(f"{alter} ALTER COLUMN words SET STORAGE MAIN"))

    def _drop(self, connection: Connection, names: Sequence[str]) -> None:
        for name in names:
            connection.execute(text(f'DROP TABLE IF EXISTS "{name}"'))

    def _synchronise(self, connection: Connection) -> int:
        stamp = read_stamp(connection, self._dataset)
        before = self._read_note(connection) or {"passages": 0, "words": 0}
        changed, passages, words = connection.execute(self._changes()).one()
        if changed >= _WORTH_STATISTICS:
            connection.execute(text(f'ANALYZE "{self.words.name}"'))
        note = {
            "state": stamp and list(stamp),
            "passages": before["passages"] + int(passages),
            "words": before["words"] + int(words),
        }
        about = json.dumps(note).replace("'", "''").replace(":", "\\:")
        connection.execute(text(f"COMMENT ON TABLE \"{self.words.name}\" IS '{about}'"))
        return int(changed)

    def _read_note(self, connection: Connection) -> dict[str, Any] | None:
        here = func.to_regclass(f'"{self.words.name}"')
        note = connection.scalar(select(func.obj_description(here, "pg_class")))
        return None if note is None else json.loads(note)

    def _changes(self) -> Any:
        """Return the statement that updates both tables and counts the changes."""
        words, counts = self.words, self.counts
        is_same = (words.c.seq == chunks.c.seq) & (words.c.key == _KEY)
        is_live = select(chunks.c.seq).where(is_same, chunks.c.dataset == self._dataset)
        gone = words.delete().where(~is_live.exists()).returning(words.c.words, words.c.length)
        lacking = self._cut(~select(words.c.seq).where(is_same).exists())
        added = words.insert().from_select(["seq", "key", "words", "length"], lacking)
        left = gone.cte("gone")
        came = added.returning(words.c.words, words.c.length).cte("came")
        changed = (
            select(came, literal(1).label("sign"))
            .union_all(select(left, literal(-1).label("sign")))
            .cte("changed")
        )
        each = func.unnest(changed.c.words).table_valued("lexeme", "positions", "weights")
        each = each.render_derived()
        difference = func.sum(changed.c.sign)
        counted = (
            select(each.c.lexeme, difference)
            .select_from(changed.join(each, literal(True)))
            .group_by(each.c.lexeme)
            .having(difference != 0)
        )
        new = insert(counts).from_select(["lexeme", "passages"], counted)
        kept = new.on_conflict_do_update(
            index_elements=["lexeme"],
            set_={"passages": counts.c.passages + new.excluded.passages},
        )
        size = func.coalesce(func.sum(changed.c.sign), 0)
        total = func.coalesce(func.sum(changed.c.sign * changed.c.length), 0)
        result = select(func.count(), size, total).select_from(changed)
        return result.add_cte(kept.returning(counts.c.lexeme).cte("kept"))

    def _cut(self, *where: ColumnElement[bool]) -> Any:
        """Select row number, key, words and number of words of the dataset's passages.

        ``OFFSET 0`` keeps subqueries apart; without it Postgres would cut a text again for every
        mention of its words.
        """
        labels = self._settings.labels
        most = _MOST_CHARS // max(1, len(labels))
        text_: ColumnElement[Any] = chunks.c.text
        fields = [(text_, "D", _MOST_CHARS)]
        fields += [(_field(name), letter, most) for name, letter in labels.items()]
        shortened = (
            func.left(func.coalesce(field, ""), limit).label(f"text{number}")
            for number, (field, _, limit) in enumerate(fields)
        )
        texts = (
            select(chunks.c.seq, _KEY.label("key"), *shortened)
            .select_from(chunks.join(documents, documents.c.id == chunks.c.document_id))
            .where(chunks.c.dataset == self._dataset, *where)
            .offset(0)
            .subquery("texts")
        )
        vectors = [
            func.setweight(
                self._words_of(texts.c[f"text{number}"]), cast(literal(letter), _OneByte())
            )
            for number, (_, letter, _) in enumerate(fields)
        ]
        vector: ColumnElement[Any] = reduce(lambda one, other: one.op("||")(other), vectors)
        raw = select(texts.c.seq, texts.c.key, vector.label("words")).offset(0).subquery("raw")
        folded = select(raw.c.seq, raw.c.key, fold_accents(raw.c.words).label("words"))
        cut = folded.offset(0).subquery("cut")
        each = func.unnest(cut.c.words).table_valued("lexeme", "positions", "weights")
        each = each.render_derived()
        often = select(func.coalesce(func.sum(func.cardinality(each.c.positions)), 0))
        length = often.select_from(each).scalar_subquery()
        return select(cut.c.seq, cut.c.key, cut.c.words, length.label("length"))

    def read_terms(self, connection: Connection, query: str) -> dict[str, int]:
        """Return the words of a query that occur, each with its number of passages."""
        counts, each = self.counts, self._lexemes(query)
        found = select(counts.c.lexeme, counts.c.passages).join(
            each, each.c.lexeme == counts.c.lexeme
        )
        rows = connection.execute(found.where(counts.c.passages > 0)).all()
        return {lexeme: int(passages) for lexeme, passages in rows}

    def count_word(self, connection: Connection, word: str) -> int:
        """Return the number of passages with a word, or with the rarest of its lexemes."""
        counts, each = self.counts, self._lexemes(word)
        rarest = func.min(func.coalesce(counts.c.passages, 0))
        joined = each.outerjoin(counts, counts.c.lexeme == each.c.lexeme)
        return connection.scalar(select(rarest).select_from(joined)) or 0

    def has_words(self, connection: Connection, query: str) -> bool:
        """Return whether a text has a word to look for, whether or not it occurs."""
        return connection.scalar(select(func.count()).select_from(self._lexemes(query))) != 0

    def _lexemes(self, query: str) -> Any:
        read = query[:_MOST_CHARS].replace("\0", " ").encode("utf-8", "replace").decode()
        words = fold_accents(self._words_of(literal(read, Text())))
        each = func.unnest(words).table_valued("lexeme", "positions", "weights")
        return each.render_derived()

    def _words_of(self, written: ColumnElement[Any]) -> ColumnElement[Any]:
        """Return the words of a text; English text loses its accents before it is stemmed."""
        # So that "resume" finds "résumé". The rules of other languages need the accents.
        if self._settings.config.rpartition(".")[2] == "english":
            is_plain = func.octet_length(written) == func.length(written)
            written = case((is_plain, written), else_=_bare(written))
        return func.to_tsvector(self._config(), written)

    def _config(self) -> ColumnElement[Any]:
        return cast(literal(self._settings.config), REGCONFIG)


def _field(name: str) -> ColumnElement[Any]:
    """Return the text of a passage's field: a column, or metadata of its document."""
    if name in ("title", "headings"):
        return chunks.c[name]
    if name == "path":  # else Postgres takes a path for a single word
        return func.regexp_replace(documents.c.path, "[^[:alnum:]]+", " ", "g")
    value = document_fields.c.text_value
    values = select(func.string_agg(value, aggregate_order_by(literal(" "), value)))
    is_of_it = document_fields.c.document_id == documents.c.id
    return values.where(is_of_it, document_fields.c.field == name).scalar_subquery()


def fold_accents(vector: ColumnElement[Any]) -> ColumnElement[Any]:
    """Remove accents from words that were already stemmed and filtered by stop words.

    A word that becomes empty or too long for Postgres is dropped.
    """
    written = cast(vector, Text())
    each = func.unnest(vector).table_valued("lexeme", "positions", "weights").render_derived()
    size = func.octet_length(_bare(each.c.lexeme))
    unfit = select(func.array_agg(each.c.lexeme)).where(~size.between(1, _MOST_BYTES))
    fit = func.ts_delete(vector, func.coalesce(unfit.scalar_subquery(), _NO_WORDS))
    is_plain = func.octet_length(written) == func.length(written)
    return case((is_plain, vector), else_=cast(_bare(cast(fit, Text())), TSVECTOR))


def _bare(written: ColumnElement[Any]) -> ColumnElement[Any]:
    parted = func.normalize(written, text("NFD"))
    return func.normalize(func.regexp_replace(parted, _ACCENTS, "", "g"), text("NFC"))
