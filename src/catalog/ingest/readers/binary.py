"""Tells binary content from text by its first bytes."""

from __future__ import annotations

SAMPLE = 8192
"""Bytes looked at."""

BYTE_ORDER_MARKS = {
    b"\xff\xfe\x00\x00": "utf-32-le",
    b"\x00\x00\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
"""Longest first, because the mark of UTF-32-LE begins with that of UTF-16-LE."""

_CERTAIN = {
    b"%PDF-": "pdf",
    b"%!PS": "postscript",
    b"{\\rtf": "rtf",
    b"\x89PNG\r\n": "png",
    b"\xff\xd8\xff": "jpeg",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\x1f\x8b": "gzip",
    b"\x7fELF": "elf",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "ole",
    b"\xfd7zXZ\x00": "xz",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xca\xfe\xba\xbe": "java class",
    b"\xcf\xfa\xed\xfe": "mach-o",
    b"\x00asm": "wasm",
    b"SQLite format 3\x00": "sqlite",
}
# Letters that a text may begin with as well: they only name what NUL bytes give away.
_LIKELY = {
    b"GIF8": "gif",
    b"BZh": "bzip2",
    b"MZ": "exe",
    b"RIFF": "riff",
    b"OggS": "ogg",
    b"ID3": "mp3",
    b"fLaC": "flac",
    b"BM": "bmp",
    b"II*\x00": "tiff",
    b"MM\x00*": "tiff",
    b"wOFF": "woff",
    b"wOF2": "woff2",
    b"PAR1": "parquet",
}
_CONTROLS = bytes(set(range(1, 32)) - set(b"\t\n\v\f\r\b\x1b")) + b"\x7f"
_MAX_CONTROL_SHARE = 0.1


def byte_order_mark(data: bytes) -> tuple[bytes, str] | None:
    """The UTF-16 or UTF-32 mark at the start and the encoding it names."""
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return mark, encoding
    return None


def binary_kind(data: bytes) -> str | None:
    """What binary format the data is (``data`` if unknown), or ``None`` for text."""
    kind = _named(data, _CERTAIN)
    if kind is not None:
        return kind
    if byte_order_mark(data) is not None:
        return None
    sample = data[:SAMPLE]
    if b"\x00" in sample:
        return _named(data, _LIKELY) or _named_inside(data) or "data"
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if controls > _MAX_CONTROL_SHARE * len(sample):
        return _named(data, _LIKELY) or "data"
    return None


def _named(data: bytes, magic: dict[bytes, str]) -> str | None:
    return next((name for start, name in magic.items() if data.startswith(start)), None)


def _named_inside(data: bytes) -> str | None:
    if data[4:8] == b"ftyp":
        return "mp4"
    return "tar" if data[257:262] == b"ustar" else None
