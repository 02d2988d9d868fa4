"""Tell text from binary data, find a text's encoding, and leave out base64."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence

from catalog.core.text import storable

_SAMPLE_BYTES = 8192
_BYTE_ORDER_MARKS = {  # longest first: the mark of UTF-32-LE begins with that of UTF-16-LE
    b"\xff\xfe\x00\x00": "utf-32-le",
    b"\x00\x00\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
_SIGNATURES = {
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
_WEAK_SIGNATURES = {
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
    if b"\x00" in sample:
        if data[4:8] == b"ftyp":
            inner: str | None = "mp4"
        else:
            inner = "tar" if data[257:262] == b"ustar" else None
        return _match_signature(data, _WEAK_SIGNATURES) or inner or "data"
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if controls > _MAX_CONTROL_SHARE * len(sample):
        return _match_signature(data, _WEAK_SIGNATURES) or "data"
    return None


def _match_signature(data: bytes, signatures: dict[bytes, str]) -> str | None:
    return next((name for start, name in signatures.items() if data.startswith(start)), None)


_HIGH_BYTE = re.compile(rb"[\x80-\xff]")
_DECLARATION = re.compile(rb"""(?:charset|encoding|coding)\s*[:=]\s*["']?([A-Za-z0-9_.:-]{2,40})""")
_DECLARED_WITHIN = 1024
_GUESS_SAMPLE = 64 * 1024
_MOSTLY_UTF8 = 4
"""Good UTF-8 sequences for every bad one, from which on the text is taken for damaged UTF-8."""
_GUESSED = """
    cp1252 iso8859-15 mac-roman cp1250 iso8859-2 cp1251 koi8-r koi8-u iso8859-5 cp866 cp1253
    iso8859-7 cp1254 cp1255 cp1256 cp1257 tis-620 cp932 euc-jp gb18030 big5hkscs cp949
"""
"""Encodings of people's texts: rarer ones would take the place of these."""
_MOST_GUESSES = 8
_AS_BROWSERS = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
}
"""What texts that name the first of each pair are written in."""
_WIDE = ("utf_7", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "utf_32_be", "utf_32_le")
_NEVER = frozenset(["punycode", "idna", "unicode-escape", "raw-unicode-escape", "undefined"]).union(
    name.replace("_", "-") for name in _WIDE
)
"""Encodings of names or literals, and those that need a mark or would hold NUL bytes."""
_IN_ASCII = ("iso-2022", "hz", "csiso2022")
_WORD = re.compile(r"[^\W\d_]+")
_MISREAD = re.compile(
    "[\x80-\x9f]|[A-Za-z\u00c0-\u024f][\u0370-\u0eff]|[\u0370-\u0eff][A-Za-z\u00c0-\u024f]"
)
"""A control character, or neighbours from two alphabets: signs of a wrong encoding."""
_TO_BE_CERTAIN = "; save it as UTF-8 to be certain"


def decode(data: bytes, *, declared: bool = False) -> str:
    """Return the text of a file that is not binary, as :func:`decode_with_remark` does."""
    return decode_with_remark(data, declared=declared)[0]


def decode_with_remark(
    data: bytes, *, declared: bool = False, charset: str | None = None
) -> tuple[str, str | None]:
    """Return the text of a file that is not binary, and a remark if its encoding is a guess.

    Tried in turn: a byte order mark, UTF-16 without one, UTF-8, ``charset`` (what a mail names),
    ``declared`` (the encoding that the text itself names), UTF-8 with few errors, a statistical
    guess, Windows-1252 with replacement. A ``charset`` that writes all letters in ASCII comes
    first.
    """
    mark = wide_encoding(data)
    if mark is not None:
        return storable(data[len(mark[0]) :].decode(mark[1], "replace")), None
    if charset is not None and charset.lower().startswith(_IN_ASCII):
        text = _decode_strictly(data, charset)
        if text is not None:
            return storable(text), None
    try:
        return storable(data.decode("utf-8-sig")), None
    except UnicodeDecodeError:
        text, remark = _decode_legacy(data, declared=declared, charset=charset)
        return storable(text), remark


def _decode_legacy(data: bytes, *, declared: bool, charset: str | None) -> tuple[str, str | None]:
    declaration = _DECLARATION.search(data[:_DECLARED_WITHIN]) if declared else None
    name = declaration[1].decode("ascii") if declaration is not None else charset
    text = None if name is None else _decode_strictly(data, name)
    if text is None and _is_damaged_utf8(data):
        text = data.decode("utf-8-sig", "replace")
    return _decode_by_guess(data) if text is None else (text, None)


def _is_damaged_utf8(data: bytes) -> bool:
    replaced = data.decode("utf-8", "replace")
    bad = replaced.count("\ufffd")
    good = sum(character > "\x7f" for character in replaced) - bad
    return good >= _MOSTLY_UTF8 * bad


def _decode_by_guess(data: bytes) -> tuple[str, str]:
    high = _HIGH_BYTE.search(data)
    start = 0 if high is None else max(0, high.start() - 1024)
    guesses = _rank_encodings(data[start : start + _GUESS_SAMPLE])
    for place, (encoding, score, reading) in enumerate(guesses):
        text = _decode_strictly(data, encoding)
        if text is not None:
            others = (other for other in guesses[place + 1 :] if other[2] != reading)
            name, its_score, _ = next(others, ("", 0.0, ""))
            share = f": {score / (score + its_score):.0%} sure against {name}" if its_score else ""
            return text, f"read as {encoding}, a guess{share}{_TO_BE_CERTAIN}"
    return data.decode("cp1252", "replace"), f"read as cp1252: no encoding fits{_TO_BE_CERTAIN}"


def _rank_encodings(sample: bytes) -> list[tuple[str, float, str]]:
    """Return encodings with their scores and readings of the sample, the likeliest first.

    Windows-1252 is before another with the same reading: it has more characters for the rest.
    """
    from chardet import detect_all

    ranked, best = [], dict[str, float]()
    guesses = detect_all(
        sample, ignore_threshold=True, include_encodings=_GUESSED.split(), compat_names=False
    )
    for guess in guesses[:_MOST_GUESSES]:
        encoding = guess["encoding"]
        if encoding is None:
            continue  # the library takes it for binary
        reading = sample.decode(encoding, "ignore")
        words = sum(not word.isascii() for word in _WORD.findall(reading))
        misread = len(_MISREAD.findall(reading)) / max(1, words)
        score = guess["confidence"] * max(0.0, 1 - misread)
        ranked.append((encoding, score, reading))
        best[reading] = max(score, best.get(reading, 0.0))
    return sorted(ranked, key=lambda one: (-best[one[2]], one[0] != "cp1252", -one[1]))


def _decode_strictly(data: bytes, encoding: str) -> str | None:
    """Return the text in that encoding, ``None`` if it is unknown, not for files, or fails."""
    try:
        name = codecs.lookup(encoding).name
        if name.replace("_", "-") in _NEVER:
            return None
        return data.decode(_AS_BROWSERS.get(name, name))
    except (LookupError, ValueError):
        return None


_CODED = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{60,}+={0,3}")
_CODED_REST = re.compile(r"[ \t]{0,4}[\r\n]{1,4}[ \t]{0,4}([A-Za-z0-9+/_-]{1,255}+={0,3})(?=\s|$)")
_LONG_CODED, _CODED_LINES = 200, 4
"""Characters of one run of base64, and lines of shorter runs, from which on it is left out."""
_MAX_ADDRESS = 2000


def leave_out_base64(text: str, lines: Sequence[int] = ()) -> tuple[str, str | None]:
    """Return the text with an ellipsis for base64 (pictures, attachments), and what was left out.

    It is left out after ``;base64,``, in a long run, or in several lines; lines keep their numbers,
    which are ``lines`` if the text is not the file. Web addresses, hashes and sequences of one case
    stay.
    """
    pieces: list[str] = []
    at = left_out = first = 0
    for start, end in _find_base64(text):
        breaks = "".join(each for each in text[start:end] if each in "\r\n")
        pieces += [text[at:start], "…", breaks]
        first = first or 1 + count_breaks(text[:start])
        left_out, at = left_out + end - start, end
    if not pieces:
        return text, None
    first = lines[first - 1] if lines else first
    told = f"read as text without {left_out:,} characters of base64, from line {first} on"
    return "".join([*pieces, text[at:]]), told


def _find_base64(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of base64; runs with only white space between them are judged together."""
    group: list[tuple[int, int]] = []
    for match in _CODED.finditer(text):
        start, end = match.span()
        before = text[max(0, start - 300) : start]
        is_attached = bool(before) and not before[-1].isspace()
        is_address = is_attached and "://" in before.rsplit(maxsplit=1)[-1]
        if is_address and end - start <= _MAX_ADDRESS:
            continue
        if group and (start - group[-1][1] > 4 or not text[group[-1][1] : start].isspace()):
            yield from _judge_base64(text, group)
            group = []
        group.append((start, end))
    yield from _judge_base64(text, group)


def _judge_base64(text: str, runs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    if not runs:
        return
    (start, _), (_, end) = runs[0], runs[-1]
    is_long = len(runs) >= _CODED_LINES or any(last - one >= _LONG_CODED for one, last in runs)
    if text.endswith(";base64,", 0, start) or (is_long and _has_mixed_letters(text[start:end])):
        rest = _CODED_REST.match(text, end)
        if rest is not None and (rest[1][-1] == "=" or _has_mixed_letters(rest[1])):
            end = rest.end()
        yield start, end


def _has_mixed_letters(text: str) -> bool:
    """Return whether capitals, small letters and digits are mixed as no words mix them."""
    sample = text[:_MAX_ADDRESS]
    capitals, digits = sum(map(str.isupper, sample)), sum(map(str.isdigit, sample))
    small = sum(map(str.islower, sample))
    return min(capitals, small) >= 0.15 * len(sample) and digits >= 0.03 * len(sample)


def count_breaks(text: str) -> int:
    r"""Count the line ends; ``\r\n`` counts once."""
    return text.count("\n") + (text.count("\r") - text.count("\r\n") if "\r" in text else 0)
