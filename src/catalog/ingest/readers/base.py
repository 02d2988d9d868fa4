"""Shared by all readers: limits, failures, titles, decoding, and the joining of blocks."""

from __future__ import annotations

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Literal, Protocol

from catalog.core.documents import Heading, MetadataValue, ParsedDocument, Table
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import Places, PlacesBuilder, Unit
from catalog.core.text import storable
from catalog.ingest.readers.metadata import LEVEL, read_level
from catalog.ingest.readers.source_lines import count_breaks

if TYPE_CHECKING:
    from catalog.core.settings import IngestSettings


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits for reading one file; to exceed one raises a ``ReadError`` that names it.

    ``text_bytes`` bounds a text file, or one record of a JSON Lines file; ``document_bytes`` a PDF,
    Word, PowerPoint, e-book or notebook file on disk, and ``unpacked_bytes`` all that it holds when
    unpacked. ``pages`` counts pages, slides or chapters, ``characters`` what comes out. ``seconds``
    and ``memory_bytes`` bound the process that reads such a file. ``attachment`` is the path of the
    only attachment of a mail to read, "" for none of them.
    """

    text_bytes: int = 20_000_000
    document_bytes: int = 200_000_000
    unpacked_bytes: int = 500_000_000
    pages: int = 20_000
    characters: int = 50_000_000
    seconds: float = 600.0
    memory_bytes: int = 2_000_000_000
    attachment: str | None = None

    @classmethod
    def of(cls, settings: IngestSettings) -> ReadLimits:
        """Return the limits of the settings."""
        return cls(
            text_bytes=settings.max_file_bytes,
            document_bytes=settings.max_document_bytes,
            unpacked_bytes=settings.max_unpacked_bytes,
            pages=settings.max_pages,
            seconds=settings.read_seconds,
            memory_bytes=settings.read_memory_bytes,
        )


DEFAULT_LIMITS = ReadLimits()


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """A part of a file that cannot be read (``corpus.jsonl:17``), although other parts can.

    ``document`` is the path of the document that the part would be, if known; its earlier text is
    kept, and that of the documents within it.
    """

    path: str
    reason: str
    document: str | None = None


LEFT_TO_ITSELF = "not read with the mail"
"""The reason of a failure for an attachment that the limits leave out."""


class Reader(Protocol):
    """Reads one format."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the documents of one open file, and failures for its unreadable parts.

        Raises ``ReadError`` with the reason if the whole file is unusable or over a limit.
        """
        ...


LevelPlace = Literal["front matter", "first lines", "own fields"]


class WholeFileReader(ABC):
    """A reader for a format in which one text file is one document."""

    declares_encoding: ClassVar[bool] = False
    """Whether files of the format may name their encoding near the top."""
    level_in: ClassVar[LevelPlace] = "first lines"
    """Where a file may say who may see it: its format's own fields are read by :meth:`parse`."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the document of the file, and remarks: a guessed encoding, base64, missing times.

        Raises ``ReadError`` if the file is binary, empty or too large.
        """
        data = read_bytes(handle, limits.text_bytes)
        kind = binary_kind(data)
        if kind is not None:
            raise ReadError(f"binary ({kind})")
        text, guess = decode_with_remark(data, declared=self.declares_encoding)
        if not text or text.isspace():
            raise EmptyDocumentError("empty")
        text, left_out = leave_out_base64(text)
        if self.level_in == "own fields":
            document = self.parse(text, path)
        else:
            level = read_level(text, in_paragraph=self.level_in == "first lines")
            document = add_level(self.parse(text, path), level)
        yield document
        left = left_out if left_out is not None and "…" in document.text else None
        for remark in (guess, document.untimed, left):
            if remark is not None:
                yield ReadFailure(path, remark)

    @abstractmethod
    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document for ``text`` (canonical, not blank)."""


def add_level(document: ParsedDocument, level: dict[str, MetadataValue]) -> ParsedDocument:
    """Return the document with the confidentiality stated before its content, if any.

    Raises ``ReadError`` if the content states another one.
    """
    if not level:
        return document
    if document.metadata.get(LEVEL, level[LEVEL]) != level[LEVEL]:
        raise ReadError(f"{LEVEL} occurs more than once")
    return replace(
        document,
        metadata={**document.metadata, **level},
        written=document.written | level.keys(),
    )


def read_bytes(handle: BinaryIO, limit: int) -> bytes:
    """Read a whole file; raise ``ReadError`` if it is over ``limit`` bytes."""
    data = handle.read(limit + 1)
    if len(data) > limit:
        raise ReadError(f"too large: over {limit:,} bytes")
    return data


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


_MAX_FAILURES = 20


def cap_failures(failures: Sequence[ReadFailure]) -> Iterator[ReadFailure]:
    """Yield the first 20 failures of a file; if there are more, one that says how many."""
    yield from failures[:_MAX_FAILURES]
    rest = failures[_MAX_FAILURES:]
    if rest:
        others = f", and {len(rest) - 1:,} after it" if len(rest) > 1 else ""
        yield ReadFailure(rest[0].path, rest[0].reason + others)


MAX_TITLE = 300
"""Characters of a title at most."""
_EXTENSION = re.compile(r"[a-z][a-z0-9_+-]{0,15}")


def file_type(path: str) -> str:
    """Return the extension in lower case without its dot, or ``txt`` without a usable one."""
    stem, _, extension = path.rpartition("/")[2].rpartition(".")  # a Path takes ten times as long
    extension = extension.lower() if stem else ""
    return extension if _EXTENSION.fullmatch(extension) else "txt"


def choose_title(path: str, *candidates: object) -> str:
    """Return the first candidate that is not blank, on one line; else the file's stem."""
    for candidate in candidates:
        if isinstance(candidate, str | int | float) and (title := one_line(candidate)):
            return title
    return one_line(PurePosixPath(path).stem) or path


def one_line(value: object) -> str:
    """Return storable text with white space collapsed, cut to the length of a title."""
    return storable(" ".join(str(value).split())[:MAX_TITLE].rstrip())


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


_GAP = "\n\n"


@dataclass(slots=True)
class JoinedText:
    """Blocks separated by blank lines; a block's offsets become offsets of the whole."""

    limits: ReadLimits
    unit: Unit
    headings: list[Heading] = field(default_factory=list)
    atomic: list[tuple[int, int]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    _blocks: list[str] = field(default_factory=list)
    _length: int = 0
    _places: PlacesBuilder = field(init=False)

    def __post_init__(self) -> None:
        self._places = PlacesBuilder(self.unit)

    @property
    def following(self) -> int:
        """Return the offset at which the next block will begin."""
        return self._length + len(_GAP) if self._blocks else 0

    def add(
        self,
        block: str,
        headings: Iterable[Heading] = (),
        atomic: Iterable[tuple[int, int]] = (),
        *,
        places: Places | None = None,
        tables: Iterable[Table] = (),
    ) -> None:
        """Append a block unless it is blank, without white space at its end.

        Raises ``ReadError`` if the whole becomes longer than ``limits.characters``.
        """
        block = storable(block).rstrip()
        if not block:
            return
        start = self.following
        self._length = start + len(block)
        if self._length > self.limits.characters:
            raise ReadError(f"too long: over {self.limits.characters:,} characters")
        self._blocks.append(block)
        self.headings += [
            Heading(start + heading.start, start + heading.end, heading.level, heading.title)
            for heading in headings
        ]
        if places is not None:
            self._places.add_all(places, start)
        self.atomic += [(start + first, start + min(last, len(block))) for first, last in atomic]
        self.tables += [Table(start + first, start + last, names) for first, last, names in tables]

    def document(
        self,
        path: str,
        *,
        title: object,
        file_type: str,
        metadata: Mapping[str, MetadataValue],
        pages: Sequence[int] = (),
    ) -> ParsedDocument:
        """Return the document of all blocks; the title is ``title``, the first heading or the file.

        Raises ``EmptyDocumentError`` without blocks.
        """
        text = _GAP.join(self._blocks)
        if not text:
            raise EmptyDocumentError("empty: no text")
        return ParsedDocument(
            path=path,
            text=text,
            title=choose_title(path, title, self.headings[0].title if self.headings else None),
            file_type=file_type,
            metadata=metadata,
            headings=tuple(self.headings),
            atomic=tuple(self.atomic),
            tables=tuple(self.tables),
            pages=tuple(min(page, len(text)) for page in pages),
            places=self._places.places(),
        )
