"""The ctime, inode and content hash of each file that was read."""

import zlib

from alembic import op
from sqlalchemy import Column, inspect, select

from catalog.store.column_types import Name, Number
from catalog.store.schema import manifest

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_NEW = {"ctime_ns": Number, "inode": Number, "digest": Name}


def upgrade() -> None:
    connection = op.get_bind()
    # A new store has them already: the first migration makes the tables as they are today.
    if "digest" in {column["name"] for column in inspect(connection).get_columns("manifest")}:
        return
    for name, kind in _NEW.items():
        op.add_column("manifest", Column(name, kind))
    keys = (manifest.c.dataset, manifest.c.file)
    sealed = select(*keys, manifest.c.checksum).where(manifest.c.checksum.is_not(None))
    for dataset, file, checksum in connection.execute(sealed).all():
        is_it = (manifest.c.dataset == dataset) & (manifest.c.file == file)
        # The CRC-32 of the row with its new values; a damaged row stays damaged.
        grown = zlib.crc32(b"\0None" * len(_NEW), checksum)
        connection.execute(manifest.update().where(is_it).values(checksum=grown))
