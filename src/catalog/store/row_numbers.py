"""Row numbers, which are never given twice: what the highest one is that ever was."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Table, column, delete, insert, select, table, text

from catalog.store.full_text import is_postgres


def last_number(connection: Connection, of: Table) -> int:
    """Return the highest row number ever given, which is known after the rows are gone.

    SQLite remembers it in a table, Postgres in the sequence of the column.
    """
    if is_postgres(connection):
        sequence = table(_sequence(of), column("last_value"), column("is_called"))
        row = connection.execute(select(sequence.c.last_value, sequence.c.is_called)).one()
        return int(row.last_value) if row.is_called else 0
    sequence = table("sqlite_sequence", column("name"), column("seq"))
    return connection.scalar(select(sequence.c.seq).where(sequence.c.name == of.name)) or 0


def note_last_number(connection: Connection, of: Table, number: int) -> None:
    """Note that numbers up to this one were given, whether their rows are there or not."""
    if number <= 0:
        return
    if is_postgres(connection):
        note_numbers(connection, of, [number])
        return
    sequence = table("sqlite_sequence", column("name"), column("seq"))
    connection.execute(delete(sequence).where(sequence.c.name == of.name))
    connection.execute(insert(sequence).values(name=of.name, seq=number))


def note_numbers(connection: Connection, of: Table, numbers: Sequence[int]) -> None:
    """Note that rows were inserted with these numbers; SQLite does so by itself."""
    if numbers and is_postgres(connection):
        parameters = {"sequence": _sequence(of), "number": max(numbers)}
        connection.execute(text("SELECT setval(:sequence, :number)"), parameters)


def _sequence(of: Table) -> str:
    [key] = of.primary_key
    return f"{of.name}_{key.name}_seq"
