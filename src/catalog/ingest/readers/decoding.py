"""Tell text from binary data, find a text's encoding, and leave out base64."""

from __future__ import annotations

import codecs
import re

from catalog.core.text import storable

_SAMPLE_BYTES = 8192
_BYTE_ORDER_MARKS = {  # longest first: the mark of UTF-32-LE begins with that of UTF-16-LE
    b"\xff\xfe\x00\x00": "utf-32-le",
    b"\x00\x00\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
_SIGNATURES = {
    b"%PDF-": "pdf", b"%!PS": "postscript", b"{\\rtf": "rtf", b"\x89PNG\r\n": "png",
    b"\xff\xd8\xff": "jpeg", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip", b"\x1f\x8b": "gzip",
    b"\x7fELF": "elf", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "ole", b"\xfd7zXZ\x00": "xz",
    b"7z\xbc\xaf\x27\x1c": "7z", b"Rar!\x1a\x07": "rar", b"\x28\xb5\x2f\xfd": "zstd",
    b"\xca\xfe\xba\xbe": "java class", b"\xcf\xfa\xed\xfe": "mach-o", b"\x00asm": "wasm",
    b"SQLite format 3\x00": "sqlite", b"AT&TFORM": "djvu",
}  # fmt: skip
# Letters that a text may begin with as well: they only name what NUL bytes give away.
_WEAK_SIGNATURES = {
    b"GIF8": "gif", b"BZh": "bzip2", b"MZ": "exe", b"RIFF": "riff", b"OggS": "ogg", b"ID3": "mp3",
    b"fLaC": "flac", b"BM": "bmp", b"II*\x00": "tiff", b"MM\x00*": "tiff", b"wOFF": "woff",
    b"wOF2": "woff2", b"PAR1": "parquet",
}  # fmt: skip
_CONTROLS = bytes(set(range(1, 32)) - set(b"\t\n\v\f\r\b\x1b")) + b"\x7f"
_MAX_CONTROL_SHARE = 0.1
_FEWEST_ZEROS = 0.03
"""Share of letters of UTF-16 with a zero byte, in a text without a mark."""


def wide_encoding(data: bytes) -> tuple[bytes, str] | None:
    """Return the UTF-16 or UTF-32 mark at the start (maybe ``b""``), and the encoding."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return mark, encoding
    sample = data[: min(len(data), _SAMPLE_BYTES) // 2 * 2]
    for encoding, high, low in (
        ("utf-16-le", sample[1::2], sample[::2]),
        ("utf-16-be", sample[::2], sample[1::2]),
    ):
        # Even Russian or Greek has spaces and line ends, of which one byte is zero.
        if b"\x00" not in low and _FEWEST_ZEROS * len(high) <= high.count(0) > 1:
            text = sample.decode(encoding, "ignore")
            if all(letter.isprintable() or letter in "\r\n\t\f" for letter in text):
                return b"", encoding
    return None


def binary_kind(data: bytes) -> str | None:
    """Return the binary format of the data (``data`` if unknown), or ``None`` for text."""
    kind = _match_signature(data, _SIGNATURES)
    if kind is not None:
        return kind
    if wide_encoding(data) is not None:
        return None
    sample = data[:_SAMPLE_BYTES]
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if b"\x00" not in sample and controls <= _MAX_CONTROL_SHARE * len(sample):
        return None
    for at, mark, name in ((4, b"ftyp", "mp4"), (257, b"ustar", "tar"), (60, b"BOOKMOBI", "mobi")):
        if data.startswith(mark, at):
            return name
    return _match_signature(data, _WEAK_SIGNATURES) or "data"


def _match_signature(data: bytes, signatures: dict[bytes, str]) -> str | None:
    return next((name for start, name in signatures.items() if data.startswith(start)), None)


_HIGH_BYTE = re.compile(rb"[\x80-\xff]")
_DECLARATION = re.compile(rb"""(?:charset|encoding|coding)\s*[:=]\s*["']?([A-Za-z0-9_.:-]{2,40})""")
_DECLARED_WITHIN = 1024
_GUESS_SAMPLE = 64 * 1024
_MOST_GUESSES = 8
_MOSTLY_UTF8 = 4
"""Good UTF-8 sequences for every bad one, from which on the text is taken for damaged UTF-8."""
_COMMON = [
    "cp1252", "iso8859-15", "mac-roman", "cp1250", "iso8859-2", "cp1251", "koi8-r", "koi8-u",
    "iso8859-5", "cp866", "cp1253", "iso8859-7", "cp1254", "cp1255", "cp1256", "cp1257", "tis-620",
    "cp932", "euc-jp", "gb18030", "big5hkscs", "cp949",
]  # fmt: skip
"""Encodings of people's texts: rarer ones would take the place of these."""
_AS_BROWSERS = {  # what texts that name the first of each pair are written in
    "iso8859-1": "cp1252", "iso8859-9": "cp1254", "tis-620": "cp874", "shift_jis": "cp932",
    "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949",
}  # fmt: skip
_NEVER = re.compile(r"utf[_-]?(7|16|32)|punycode|idna|(raw[_-])?unicode[_-]escape|undefined")
"""Encodings of names or literals, and those that need a mark or would hold NUL bytes."""
_IN_ASCII = ("iso-2022", "hz", "csiso2022")
_JAPANESE = re.compile(rb"\x1b\$[@B]")
_WORD = re.compile(r"[^\W\d_]+")
_MISREAD = re.compile(
    "[\x80-\x9f]|[A-Za-z\u00c0-\u024f][\u0370-\u0eff]|[\u0370-\u0eff][A-Za-z\u00c0-\u024f]"
)
"""A control character, or neighbours from two alphabets: signs of a wrong encoding."""


def decode(data: bytes, *, declared: bool = False) -> str:
    """Return the text of a file that is not binary, as :func:`decode_with_remark` does."""
    return decode_with_remark(data, declared=declared)[0]


def decode_with_remark(
    data: bytes, *, declared: bool = False, charset: str | None = None
) -> tuple[str, str | None]:
    """Return the text of a file that is not binary, and a remark if its encoding is a guess.

    Tried in turn: a byte order mark, UTF-16 without one, encodings that write all letters in ASCII,
    UTF-8, ``charset`` (what a mail names), ``declared`` (the encoding that the text itself names),
    UTF-8 with few errors, a statistical guess, Windows-1252 with replacement.
    """
    mark = wide_encoding(data)
    if mark is not None:
        return storable(data[len(mark[0]) :].decode(mark[1], "replace")), None
    is_ascii = charset is not None and charset.lower().startswith(_IN_ASCII)
    text = _decode_as(data, charset) if is_ascii else None
    if text is None and _JAPANESE.search(data) is not None:
        text = _decode_as(data, "iso2022_jp")
    text = _decode_as(data, "utf-8-sig") if text is None else text
    if text is not None:
        return storable(text), None
    declaration = _DECLARATION.search(data[:_DECLARED_WITHIN]) if declared else None
    text = _decode_as(data, declaration[1].decode("ascii") if declaration is not None else charset)
    if text is None and _is_damaged_utf8(data):
        text = data.decode("utf-8-sig", "replace")
    if text is not None:
        return storable(text), None
    text, encoding = _guess(data)
    return storable(text), f"read as {encoding}, a guess; save it as UTF-8 to be certain"


def _is_damaged_utf8(data: bytes) -> bool:
    replaced = data.decode("utf-8", "replace")
    bad = replaced.count("\ufffd")
    good = sum(character > "\x7f" for character in replaced) - bad
    return good >= _MOSTLY_UTF8 * bad


def _guess(data: bytes) -> tuple[str, str]:
    """Return text and encoding: the likeliest one that does not mix two alphabets in words."""
    from chardet import detect_all

    high = _HIGH_BYTE.search(data)
    start = 0 if high is None else max(0, high.start() - 1024)
    sample = data[start : start + _GUESS_SAMPLE]
    found = detect_all(sample, ignore_threshold=True, include_encodings=_COMMON, compat_names=False)
    scores: dict[str, float] = {}
    best: dict[str, float] = {}  # of all encodings with the same reading
    for one in found[:_MOST_GUESSES]:
        if (name := one["encoding"]) is not None:
            reading = sample.decode(name, "ignore")
            scores[name] = one["confidence"] * (1 - _misread_share(reading))
            best[reading] = max(scores[name], best.get(reading, 0.0))
    # Windows-1252 is before another with the same reading: it has more characters for the rest.
    for name in sorted(
        scores, key=lambda one: (-best[sample.decode(one, "ignore")], one != "cp1252", -scores[one])
    ):
        if (text := _decode_as(data, name)) is not None:
            return text, name
    return data.decode("cp1252", "replace"), "cp1252"


def _misread_share(reading: str) -> float:
    """Return how many neighbours are of two alphabets, for each word that is not ASCII."""
    words = sum(not word.isascii() for word in _WORD.findall(reading))
    return min(1.0, len(_MISREAD.findall(reading)) / max(1, words))


def _decode_as(data: bytes, encoding: str | None) -> str | None:
    """Return the text in that encoding, ``None`` if it is unknown, not for files, or fails."""
    if encoding is None:
        return None
    try:
        name = codecs.lookup(encoding).name
        return None if _NEVER.match(name) else data.decode(_AS_BROWSERS.get(name, name))
    except (LookupError, ValueError):
        return None


_MOJIBAKE = re.compile("[\u00c2-\u00f4][\x80-\xbf]")


def mend_mojibake(text: str) -> str:
    """Return a text with UTF-8 that was taken for Latin-1 undone: ``Ã©tÃ©`` as ``été``."""
    if _MOJIBAKE.search(text) is None:
        return text
    try:
        return text.encode("latin-1").decode("utf-8")
    except ValueError:
        return text


_RUN = r"[A-Za-z0-9+/_-]{60,}+={0,3}"
_BASE64 = re.compile(  # a run, and those that only line breaks part from it; the last may be short
    rf"(?<![A-Za-z0-9+/_-]){_RUN}(?:[ \t]{{0,4}}[\r\n]{{1,2}}[ \t]{{0,4}}{_RUN})*+"
    r"(?:[ \t]{0,4}[\r\n]{1,2}[ \t]{0,4}[A-Za-z0-9+/_-]{1,255}+={0,3}(?![^\s]))?"
)
_LONG_RUN, _FEW_LINES = 200, 4
"""Characters of one run of base64, and lines of shorter runs, from which on it is left out."""
_MAX_ADDRESS = 2000


def leave_out_base64(text: str) -> tuple[str, str | None]:
    """Return the text with an ellipsis for base64 (pictures, attachments), and what was left out.

    It is left out after ``;base64,``, in a long run, or in several lines; lines keep their numbers.
    Web addresses, hashes and sequences of one case stay.
    """
    left_out = 0

    def leave_out(match: re.Match[str]) -> str:
        nonlocal left_out
        lines = match[0].split()
        is_data = text.endswith(";base64,", 0, match.start())
        is_long = len(lines) >= _FEW_LINES or max(map(len, lines)) >= _LONG_RUN
        before = text[max(0, match.start() - 300) : match.start()].split(" ")[-1]
        is_address = "://" in before.rpartition("\n")[2] and len(match[0]) <= _MAX_ADDRESS
        if not is_data and (is_address or not is_long or not _has_mixed_letters(match[0])):
            return match[0]
        rest = match[0][len(match[0].rstrip()) :]
        if len(lines) > 1 and not (lines[-1][-1] == "=" or _has_mixed_letters(lines[-1])):
            rest = match[0][match[0].rindex(lines[-1]) :]
        coded = match[0].removesuffix(rest)
        left_out += len(coded)
        return "…" + "".join(one for one in coded if one in "\r\n") + rest

    text_left = _BASE64.sub(leave_out, text)
    told = f"read as text without {left_out:,} characters of base64"
    return text_left, told if left_out else None


def _has_mixed_letters(text: str) -> bool:
    """Return whether capitals, small letters and digits are mixed as no words mix them."""
    sample = text[:_MAX_ADDRESS]
    capitals, digits = sum(map(str.isupper, sample)), sum(map(str.isdigit, sample))
    small = sum(map(str.islower, sample))
    return min(capitals, small) >= 0.15 * len(sample) and digits >= 0.03 * len(sample)
