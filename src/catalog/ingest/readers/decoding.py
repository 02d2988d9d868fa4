"""Tell text from binary data, find a text's encoding, and leave out base64."""

import codecs
import re
from contextlib import suppress

from catalog.core.text import storable

_SAMPLE_BYTES = 8192
_SIGNATURES = {
    b"%PDF-": "pdf", b"%!PS": "postscript", b"{\\rtf": "rtf", b"\x89PNG\r\n": "png",
    b"\xff\xd8\xff": "jpeg", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip", b"\x1f\x8b": "gzip",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "ole", b"\xfd7zXZ\x00": "xz", b"7z\xbc\xaf\x27": "7z",
    b"Rar!\x1a\x07": "rar", b"\x28\xb5\x2f\xfd": "zstd", b"BZh91AY": "bzip2", b"AT&TFORM": "djvu",
}  # fmt: skip
_CONTROLS = bytes(set(range(1, 32)) - set(b"\t\n\v\f\r\b\x1b")) + b"\x7f"


def wide_encoding(data: bytes) -> tuple[bytes, str] | None:
    """Return the UTF-16 or UTF-32 mark at the start (maybe ``b""``), and the encoding."""
    for encoding in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        if data.startswith(mark := "\ufeff".encode(encoding)):
            return mark, encoding
    sample = data[: min(len(data), _SAMPLE_BYTES) // 2 * 2]
    for encoding, at in (("utf-16-le", 1), ("utf-16-be", 0)):
        high, low = sample[at::2], sample[1 - at :: 2]
        # Even Russian or Greek has spaces and line ends, of which one byte is zero: 3 % at least.
        if b"\x00" not in low and 0.03 * len(high) <= high.count(0) > 1:
            text = sample.decode(encoding, "ignore")
            if all(letter.isprintable() or letter in "\r\n\t\f" for letter in text):
                return b"", encoding
    return None


def binary_kind(data: bytes) -> str | None:
    """Return the binary format of the data (``data`` if unknown), or ``None`` for text."""
    sample = data[:_SAMPLE_BYTES]
    for start, kind in _SIGNATURES.items():
        if data.startswith(start):
            return kind
    is_plain = len(sample.translate(None, _CONTROLS)) >= 0.9 * len(sample)
    if wide_encoding(data) is not None or (b"\x00" not in sample and is_plain):
        return None
    marks = {b"ftyp": "mp4", b"ustar": "tar", b"BOOKMOBI": "mobi"}
    return next((kind for mark, kind in marks.items() if mark in sample[:300]), "data")


_DECLARATION = re.compile(rb"""(?:charset|encoding|coding)\s*[:=]\s*["']?([A-Za-z0-9_.:-]{2,40})""")
_COMMON = (  # encodings of people's texts: rarer ones would take the place of these
    "cp1252 iso8859-15 mac-roman cp1250 iso8859-2 cp1251 koi8-r koi8-u iso8859-5 cp866 cp1253 "
    "iso8859-7 cp1254 cp1255 cp1256 cp1257 tis-620 cp932 euc-jp gb18030 big5hkscs cp949"
)
_AS_BROWSERS = {  # what texts that name the first of each pair are written in
    "iso8859-1": "cp1252", "iso8859-9": "cp1254", "tis-620": "cp874", "shift_jis": "cp932",
    "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949",
}  # fmt: skip
_NEVER = re.compile(r"utf[_-]?(7|16|32)|punycode|idna|(raw[_-])?unicode[_-]escape|undefined")
_MISREAD = re.compile(  # a control character, or neighbours from two alphabets
    "[\x80-\x9f]|[A-Za-z\u00c0-\u024f][\u0370-\u0eff]|[\u0370-\u0eff][A-Za-z\u00c0-\u024f]"
)


def decode(data: bytes, *, declared: bool = False) -> str:
    """Return the text of :func:`decode_with_remark`."""
    return decode_with_remark(data, declared=declared)[0]


def decode_with_remark(
    data: bytes, *, declared: bool = False, charset: str | None = None
) -> tuple[str, str | None]:
    """Return the text of a file that is not binary, and a remark if its encoding is a guess.

    Tried in turn: UTF-16, an encoding that writes all letters in ASCII, UTF-8, the ``charset`` of a
    mail or (``declared``) the one that the text names, UTF-8 with few errors, a guess.
    """
    if (wide := wide_encoding(data)) is not None:
        return storable(data[len(wide[0]) :].decode(wide[1], "replace")), None
    told = _DECLARATION.search(data[:1024]) if declared else None
    named = charset if told is None else told[1].decode("ascii")
    is_ascii = charset is not None and charset.lower().startswith(("iso-2022", "hz", "csiso2022"))
    japanese = "iso2022_jp" if re.search(rb"\x1b\$[@B]", data) else None
    for encoding in (charset if is_ascii else None, japanese, "utf-8-sig", named):
        if (text := _decode_as(data, encoding)) is not None:
            return storable(text), None
    text = data.decode("utf-8-sig", "replace")
    if sum(character > "\x7f" for character in text) >= 5 * text.count("\ufffd"):  # damaged UTF-8
        return storable(text), None
    text, name = _guess(data)
    return storable(text), f"read as {name}, a guess; save it as UTF-8 to be certain"


def _guess(data: bytes) -> tuple[str, str]:
    """Return text and encoding: the likeliest one that does not mix two alphabets in words."""
    from chardet import detect_all

    start = 0 if (high := re.search(rb"[\x80-\xff]", data)) is None else max(0, high.start() - 1024)
    sample, ranked = data[start : start + 65_536], []
    kinds = _COMMON.split()
    found = detect_all(sample, ignore_threshold=True, include_encodings=kinds, compat_names=False)
    for one in found[:8]:
        reading = sample.decode(name := one["encoding"] or "cp1252", "ignore")
        words = sum(not word.isascii() for word in re.findall(r"[^\W\d_]+", reading))
        misread = min(1.0, len(_MISREAD.findall(reading)) / max(1, words))
        ranked.append((one["confidence"] * (misread - 1), name != "cp1252", name))
    names = [name for *_, name in sorted(ranked)]
    if names and sample.decode(names[0], "ignore") == sample.decode("cp1252", "ignore"):
        names.insert(0, "cp1252")  # it has more characters for the rest
    for name in names:
        if (text := _decode_as(data, name)) is not None:
            return text, name
    return data.decode("cp1252", "replace"), "cp1252"


def _decode_as(data: bytes, encoding: str | None) -> str | None:
    """Return the text in that encoding, ``None`` if it is unknown, not for files, or fails."""
    try:
        name = codecs.lookup(encoding or "").name
        return None if _NEVER.match(name) else data.decode(_AS_BROWSERS.get(name, name))
    except (LookupError, ValueError):
        return None


def mend_mojibake(text: str) -> str:
    """Return a text with UTF-8 that was taken for Latin-1 undone: ``Ã©tÃ©`` as ``été``."""
    with suppress(ValueError):
        text = text.encode("latin-1").decode() if re.search("[Â-ô][\x80-\xbf]", text) else text
    return text


_RUN, _GAP = r"[A-Za-z0-9+/_-]{60,}+={0,3}", r"[ \t]{0,4}[\r\n]{1,2}[ \t]{0,4}"
_BASE64 = re.compile(  # runs that only line breaks part; the last may be short if no word looks so
    rf"(?<![A-Za-z0-9+/_-]){_RUN}(?:{_GAP}{_RUN})*+"
    rf"(?:{_GAP}(?=\S*=|\S*\d)(?=\S*=|\S*[A-Z])[A-Za-z0-9+/_-]{{1,255}}+={{0,3}}(?!\S))?"
)


def leave_out_base64(text: str) -> tuple[str, str | None]:
    """Return the text with an ellipsis for base64 (pictures, attachments), and what was left out.

    Line breaks stay, and so do web addresses, hashes and sequences of one case.
    """
    left_out = 0

    def leave_out(found: re.Match[str]) -> str:
        nonlocal left_out
        run, start = found[0], found.start()
        lines, sample = run.split(), run[:2000]
        small, digits = sum(map(str.islower, sample)), sum(map(str.isdigit, sample))
        fewer = min(small, sum(map(str.isupper, sample)))
        is_mixed = fewer >= 0.15 * len(sample) and digits >= 0.03 * len(sample)  # as in no word
        is_long = is_mixed and (len(lines) >= 4 or max(map(len, lines)) >= 200)
        is_address = run == sample and re.search(r"://\S*\Z", text[max(0, start - 300) : start])
        if not text.endswith(";base64,", 0, start) and (is_address or not is_long):
            return run
        left_out += len(run)
        return "…" + "".join(one for one in run if one in "\r\n")

    text_left = _BASE64.sub(leave_out, text)
    told = f"read as text without {left_out:,} characters of base64"
    return text_left, told if left_out else None
