"""The drive that a file lay on, by the folder at which it was mounted.

Rows of older releases learn it at the next update of their dataset.
"""

import zlib

from alembic import op
from sqlalchemy import Column, Text, inspect

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    connection = op.get_bind()
    # A new store has it already: the first migration makes the tables as they are today.
    if "mount" in {column["name"] for column in inspect(connection).get_columns("manifest")}:
        return
    op.add_column("manifest", Column("mount", Text()))
    sqlite = connection.connection.driver_connection
    sqlite.create_function("with_null", 1, _with_null, deterministic=True)
    op.execute(
        "UPDATE manifest SET checksum = with_null(checksum) WHERE typeof(checksum) = 'integer'"
    )


def _with_null(checksum: int) -> int:
    """Return the CRC-32 of a row that got one more value; a row that is damaged stays so."""
    return zlib.crc32(b"\0None", checksum & 0xFFFFFFFF)
