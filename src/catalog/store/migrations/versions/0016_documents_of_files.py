"""How many documents each file had when its entry was written."""

import zlib

from alembic import op
from sqlalchemy import Column, Integer, inspect, text

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A new store has it already: the first migration makes the tables as they are today.
    connection = op.get_bind()
    columns = inspect(connection).get_columns("manifest")
    if "documents" in {column["name"] for column in columns}:
        return
    op.add_column("manifest", Column("documents", Integer(), nullable=False, server_default="0"))
    op.execute(
        "UPDATE manifest SET documents = (SELECT count(*) FROM documents "
        "WHERE documents.dataset = manifest.dataset AND documents.file = manifest.file)"
    )
    sealed = "SELECT dataset, file, documents, checksum FROM manifest WHERE checksum IS NOT NULL"
    statement = "UPDATE manifest SET checksum = :sum WHERE dataset = :dataset AND file = :file"
    for row in connection.execute(text(sealed)).mappings().all():
        # The CRC-32 of a row that got one more value; a damaged row stays damaged.
        extended = zlib.crc32(f"\0{row['documents']}".encode(), row["checksum"] & 0xFFFFFFFF)
        connection.execute(text(statement), {**row, "sum": extended})
