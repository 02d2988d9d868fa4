"""The text of a mail line by line: its place in the file, quotations and the signature."""

from __future__ import annotations

import re
from binascii import a2b_qp
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from email.message import Message
from itertools import accumulate, groupby
from typing import Literal, NamedTuple

from catalog.core.documents import Segment
from catalog.core.places import Places, PlacesBuilder, Unit
from catalog.core.text import storable
from catalog.ingest.readers.decoding import decode_with_remark
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import LEVEL

Kind = Literal["text", "quote", "signature"]


class MailLine(NamedTuple):
    """A line of the text, and the first and last line of the file that hold it."""

    text: str
    first: int
    last: int


class MailText:
    """The lines of the text parts of one mail, in the order of the file ``raw``.

    ``remarks`` are about their encodings, ``levels`` are the confidentialities that HTML states.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at, self._number = raw, 0, 1
        self.lines: list[MailLine] = []
        self.remarks: list[str] = []
        self.levels: list[str] = []

    def add(self, part: Message) -> None:
        """Add the lines of a text part, after an empty line if there are lines before."""
        lines = self._decode(part)
        if part.get_content_subtype() == "html":
            lines = list(self._html_lines(lines))
        elif part.get_param("format") == "flowed":
            lines = list(_unwrap(lines, str(part.get_param("delsp")).lower() == "yes"))
        while lines and not lines[-1].text.strip():
            lines.pop()
        if lines and self.lines:
            self.lines.append(MailLine("", lines[0].first, lines[0].first))
        self.lines += lines

    def _decode(self, part: Message) -> list[MailLine]:
        """Return the decoded lines of a part."""
        data = part.get_payload(decode=True)
        if not isinstance(data, bytes) or not data:
            return []
        text, remark = decode_with_remark(data, charset=part.get_content_charset())
        self.remarks += [remark.partition(";")[0]] if remark is not None else []
        text = text.replace(_OPEN, "\ufffd").replace(_CLOSE, "\ufffd")
        encoding = str(part.get("content-transfer-encoding", "")).strip().casefold()
        is_coded = encoding not in _PLAIN_ENCODINGS
        payload = str(part.get_payload()).encode("latin-1", "replace") if is_coded else data
        at = self._raw.find(payload, self._at)
        if at >= 0:
            self._number += self._raw.count(b"\n", self._at, at)
            self._at = at
        coded, number = payload.rstrip(b"\r\n").split(b"\n"), self._number
        sizes = _sizes(coded, encoding, len(data))
        lines = list(_place_lines(text, data, sizes, number))
        if at >= 0:
            self._number += payload.count(b"\n")
            self._at += len(payload)
        return lines

    def _html_lines(self, lines: Sequence[MailLine]) -> Iterator[MailLine]:
        """Yield the lines of the visible text of HTML; those in a ``blockquote`` begin with >."""
        source = "\n".join(line.text for line in lines)
        if not source.strip():
            return
        marked = _QUOTE_END.sub(_MARK_END, _QUOTE_START.sub(_MARK_START, source))
        page = extract(marked, unit="line")
        if LEVEL in page.metadata:
            self.levels.append(str(page.metadata[LEVEL]))
        offset, depth, at, is_blank = 0, 0, lines[0].first, True
        for text in page.text.split("\n"):
            here = page.places.numbers_of(offset, offset + max(1, len(text))) or (1, 1)
            first, last = (lines[min(number, len(lines)) - 1] for number in here)
            offset += len(text) + 1
            depth = max(0, depth + text.count(_OPEN) - text.count(_CLOSE))
            if text in (_OPEN, _CLOSE) or (is_blank and not text):
                continue
            is_blank, is_quoted = not text, bool(depth and text.strip())
            at = first.first if text else at
            yield MailLine("> " * is_quoted + text, at, max(at, last.last if text else at))


_PLAIN_ENCODINGS = ("", "7bit", "8bit", "binary")
_OPEN, _CLOSE = "\ue000", "\ue001"  # stand for the tags of a quotation in the text of HTML
_QUOTE_START = re.compile(r"<blockquote\b", re.IGNORECASE)
_QUOTE_END = re.compile(r"</blockquote\s*+>", re.IGNORECASE)
_MARK_START, _MARK_END = f"<p>{_OPEN}</p><blockquote", f"</blockquote><p>{_CLOSE}</p>"


def _sizes(coded: Sequence[bytes], encoding: str, size: int) -> list[float]:
    """Return how many decoded bytes each line of a part holds, in all about ``size``."""
    if encoding in _PLAIN_ENCODINGS:
        return [len(line) + 1 for line in coded]
    if encoding == "quoted-printable":
        return [len(a2b_qp(line + b"\n")) for line in coded]
    return [size / len(coded)] * len(coded)  # base64 has lines of one length


def _place_lines(text: str, data: bytes, sizes: Sequence[float], number: int) -> Iterator[MailLine]:
    """Yield the lines of a text with those of the file, which begin at ``number``."""
    ends = list(accumulate(sizes))
    lengths = [len(line) + 1 for line in data.split(b"\n")]
    texts = text.split("\n")
    if len(texts) != len(lengths):  # as in UTF-16, where a line break is no byte
        lengths = [int(ends[-1]) // len(texts)] * len(texts)
    start = 0
    for line, length in zip(texts, lengths, strict=True):
        first = min(bisect_right(ends, start), len(ends) - 1)
        last = min(bisect_left(ends, start + max(1, length - 1)), len(ends) - 1)
        yield MailLine(line.removesuffix("\r"), number + first, number + max(first, last))
        start += length


def _unwrap(lines: Iterable[MailLine], drops_space: bool) -> Iterator[MailLine]:
    """Join the lines that a program wrapped (``format=flowed``, RFC 3676)."""
    open_line: MailLine | None = None
    open_depth = 0
    for line in lines:
        bare = line.text.lstrip(">")
        depth = len(line.text) - len(bare)
        content = bare.removeprefix(" ")
        if open_line is not None and (depth != open_depth or content == "-- "):
            yield open_line
            open_line = None
        if open_line is None:
            mark = ">" * depth + " " * bool(depth)
            whole = MailLine(mark + content, line.first, line.last)
        else:
            before = open_line.text[:-1] if drops_space else open_line.text
            whole = MailLine(before + content, open_line.first, line.last)
        is_open = content.endswith(" ") and content != "-- "
        open_line, open_depth = (whole, depth) if is_open else (None, 0)
        if not is_open:
            yield whole
    if open_line is not None:
        yield open_line


_SEPARATOR = re.compile(r"\s*-{2,}\s*[^\W\d_][^-]{2,60}-{2,}\s*")
_FIELD = re.compile(r"[*_]*[^\W\d_][\w /-]{0,25}[*_]*\s?[:：].*")
_FROM = re.compile(
    r"[*_]*(?:From|Von|De|Da|Van|Från|Fra|Lähettäjä|Od|От|Від|Kimden|Από|差出人|发件人|寄件者)"
    r"[*_]*\s?[:：].+"
)
_RULE = re.compile(r"\s*_{5,}\s*")
_LIST_RULE = re.compile(r"[_=-]{20,}\s*")
_WHEN = re.compile(r"\d{4}|\d:\d\d")
_FIELDS = 3
_LONGEST_SIGNATURE = 15
_LONGEST_FOOTER = 8
_MAX_SEGMENTS = 100


def tell_kinds(lines: Sequence[str]) -> list[Kind]:
    """Return for each line whether it is new text, quoted from another mail, or a signature.

    Quoted are lines with ``>`` and the line above that says who wrote them; and everything after a
    rule such as ``-----Original Message-----`` or after the fields (From, Sent, To) that Outlook
    writes above the mail that is answered.
    """
    kinds: list[Kind] = ["quote" if line.startswith(">") else "text" for line in lines]
    end = next((at for at in range(len(lines)) if _opens_original(lines, at)), len(lines))
    kinds[end:] = ["quote"] * (len(lines) - end)
    for at in range(1, end):
        if kinds[at] == "quote" and kinds[at - 1] == "text":
            if not lines[at - 1].strip() and at > 1 and kinds[at - 2] == "quote":
                kinds[at - 1] = "quote"
            _mark_attribution(lines, kinds, at)
    for at in range(end):
        if kinds[at] == "text" and (stop := _signature_end(lines, kinds, at)):
            kinds[at:stop] = ["signature"] * (stop - at)
    return kinds


def _opens_original(lines: Sequence[str], at: int) -> bool:
    """Return whether the rest from this line on is another mail."""
    line = lines[at]
    if _SEPARATOR.fullmatch(line) or _RULE.fullmatch(line):
        after = [one for one in lines[at + 1 : at + 4] if one.strip()][:2]
        return len(after) == 2 and all(map(_FIELD.fullmatch, after))
    is_first = at > 0 and not lines[at - 1].strip() and _FROM.fullmatch(line) is not None
    after = [one for one in lines[at + 1 : at + 2 * _FIELDS] if one.strip()][:_FIELDS]
    return is_first and sum(_FIELD.fullmatch(one) is not None for one in after) >= _FIELDS - 1


def _mark_attribution(lines: Sequence[str], kinds: list[Kind], quote: int) -> None:
    """Mark the line above a quotation that says who wrote it, and a line that it continues."""
    last = quote - 1 - (not lines[quote - 1].strip())
    if last < 0 or kinds[last] != "text" or not lines[last].rstrip().endswith((":", "：")):
        return
    above = [lines[at].strip() if at >= 0 else "" for at in (last - 1, last - 2)]
    is_begun = _WHEN.search(above[0]) is not None and not _WHEN.search(lines[last])
    first = last - bool(above[0] and (not above[1] or is_begun))
    if any(_WHEN.search(line) or "@" in line for line in lines[first : last + 1]):
        kinds[first:quote] = ["quote"] * (quote - first)


def _signature_end(lines: Sequence[str], kinds: Sequence[Kind], at: int) -> int:
    """Return where the signature ends that begins in this line, 0 if none does."""
    is_mark = lines[at].rstrip() == "--"
    if not is_mark and not _LIST_RULE.fullmatch(lines[at]):
        return 0
    most = at + (_LONGEST_SIGNATURE if is_mark else _LONGEST_FOOTER)
    after = range(at, min(most + 1, len(lines)))
    stop = next((one for one in after if kinds[one] == "quote"), after.stop)
    is_last = is_mark or stop == len(lines)
    return stop if is_last and stop <= most else 0


def mark_segments(lines: Sequence[str], kinds: Sequence[Kind], start: int) -> Iterator[Segment]:
    """Yield the quotations and signatures of a text whose first line begins at ``start``.

    After the first hundred, quotations stay in the text, where ``>`` marks them: a passage for each
    line would make millions of one mail.
    """
    left = _MAX_SEGMENTS
    for kind, group in groupby(zip(kinds, lines, strict=True), key=lambda pair: pair[0]):
        length = sum(len(line) + 1 for _, line in group)
        if kind != "text" and left:
            left -= 1
            yield Segment(start, start + length - 1, kind)
        start += length


def place_lines(lines: Iterable[MailLine], unit: Unit) -> Places:
    """Return the map of the text of these lines to the lines of the file, or to paragraphs."""
    places, offset, paragraph, is_open = PlacesBuilder(unit), 0, 0, False
    for line in lines:
        if line.text.strip():
            paragraph += not is_open
            places.add(offset, line.first if unit == "line" else paragraph)
            if unit == "line" and line.last > line.first and len(line.text) > 1:
                places.add(offset + len(line.text) - 1, line.last)
        is_open = bool(line.text.strip())
        offset += len(line.text) + 1
    return places.places()


def join_lines(lines: Iterable[MailLine]) -> str:
    """Return the text of the lines."""
    return storable("\n".join(line.text for line in lines))
