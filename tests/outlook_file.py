"""Write a small Outlook message: an OLE file with streams of properties (MS-CFB, MS-OXMSG)."""

import struct

_SECTOR, _FREE, _END, _FAT = 512, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
_TEXT, _BINARY = 0x1F, 0x102
_LEAST = 4096  # bytes of a stream in large sectors


def outlook_message(
    *, subject: str, body: str, headers: str = "", attached: tuple[tuple[str, bytes], ...] = ()
) -> bytes:
    """Return a ``.msg`` file with these attachments, by name."""
    root = {0x0037: subject, 0x1000: body, 0x007D: headers}
    tree: dict[str, object] = _properties(root, header=32)
    for number, (name, content) in enumerate(attached):
        fields: dict[int, str | bytes] = {0x3707: name, 0x3701: content}
        tree[f"__attach_version1.0_#{number:08X}"] = _properties(fields, header=8)
    return _compound(tree)


def _properties(fields: dict[int, str | bytes], header: int) -> dict[str, object]:
    streams: dict[str, object] = {}
    rows = b""
    for number, value in fields.items():
        kind = _TEXT if isinstance(value, str) else _BINARY
        data = value.encode("utf-16-le") if isinstance(value, str) else value
        size = len(data) + (2 if kind == _TEXT else 0)
        rows += struct.pack("<HHIII", kind, number, 6, size, 0)
        streams[f"__substg1.0_{number:04X}{kind:04X}"] = data
    streams["__properties_version1.0"] = b"\0" * header + rows
    return streams


class _Sectors:
    """The pieces of streams, and the table that chains them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pieces: list[bytes] = []
        self.table: list[int] = []

    def store(self, data: bytes) -> int:
        """Add a stream; return its first piece."""
        first = len(self.pieces)
        pieces = [data[at : at + self.size] for at in range(0, max(len(data), 1), self.size)]
        self.pieces += [piece.ljust(self.size, b"\0") for piece in pieces]
        self.table += [*range(first + 1, first + len(pieces)), _END]
        return first


def _compound(tree: dict[str, object]) -> bytes:
    """Return a compound file; the entries of a folder are a list to the right."""
    entries: list[list[object]] = []
    large, small = _Sectors(_SECTOR), _Sectors(64)

    def add(name: str, kind: int) -> list[object]:
        entries.append([name, kind, _FREE, _FREE, 0, 0])  # right, child, first piece, size
        return entries[-1]

    def fill(folder: list[object], streams: dict[str, object]) -> None:
        before, field = folder, 3
        for name in sorted(streams, key=lambda one: (len(one), one.upper())):
            value = streams[name]
            before[field] = len(entries)
            before, field = add(name, 1 if isinstance(value, dict) else 2), 2
            if isinstance(value, dict):
                fill(before, value)
            else:
                assert isinstance(value, bytes)
                where = small if len(value) < _LEAST else large
                before[4:] = [where.store(value), len(value)]

    root = add("Root Entry", 5)
    fill(root, tree)
    root[4:] = [large.store(b"".join(small.pieces)), len(small.pieces) * small.size]
    small_table = large.store(struct.pack(f"<{len(small.table)}I", *small.table))
    small_sectors = len(large.pieces) - small_table
    directory = large.store(b"".join(map(_entry, entries)))
    count = -(-(len(large.table) + 2) // (_SECTOR // 4))
    tables = [len(large.pieces) + at for at in range(count)]
    table = [*large.table, *[_FAT] * count]
    coded = struct.pack(f"<{len(table)}I", *table).ljust(count * _SECTOR, b"\xff")
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 16
    header += struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + b"\0" * 6
    header += struct.pack(
        "<9I", 0, count, directory, 0, _LEAST, small_table, small_sectors, _END, 0
    )
    header += struct.pack("<109I", *tables, *[_FREE] * (109 - count))
    return header + b"".join(large.pieces) + coded


def _entry(fields: list[object]) -> bytes:
    name, kind, right, child, first, size = fields
    coded = str(name).encode("utf-16-le") + b"\0\0"
    head = coded.ljust(64, b"\0") + struct.pack("<HBB", len(coded), kind, 1)
    links = struct.pack("<III", _FREE, right, child)
    return head + links + b"\0" * 36 + struct.pack("<IQ", first, size)
