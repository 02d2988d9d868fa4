r"""Text as written: plain text, tables, code, calendars, and markup whose headings are one line.

Lines in literal blocks of Org, AsciiDoc and LaTeX (``#+begin_src``, ``----``,
``\begin{verbatim}``) are no headings, and these blocks stay whole.
"""

from __future__ import annotations

import csv
import quopri
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath
from typing import ClassVar

from catalog.core.documents import Heading, ParsedDocument
from catalog.core.places import PlacesBuilder
from catalog.ingest.chunking.boundaries import Line, iter_lines
from catalog.ingest.readers.base import WholeFileReader, choose_title, file_type, one_line
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.tables import COMPARED_ROWS, make_table, names_columns
from catalog.ingest.readers.timed.converted import add_segments


class CodeReader(WholeFileReader):
    """Read text that may name its encoding: ``# -*- coding: latin-1 -*-``, ``<?xml …?>``."""

    declares_encoding = True

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document unchanged."""
        title = choose_title(path)
        return ParsedDocument(path=path, text=text, title=title, file_type=file_type(path))


class PlainTextReader(WholeFileReader):
    """Read text unchanged, except if its lines begin with times."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document unchanged, or as a transcript; a ``.log`` stays a log."""
        document = CodeReader().parse(text, path)
        is_log = ".log" in PurePosixPath(path.lower()).suffixes
        return document if is_log else add_segments(document, {})


class CsvReader(PlainTextReader):
    """Read rows unchanged; the names of their columns go with each passage of them.

    Of the delimiters it is the one that gives most of the first rows one number of columns. Lines
    above the first row that fills as many cells as most are text.
    """

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document with its table and rows of several lines, or as a transcript."""
        document, lines = super().parse(text, path), list(iter_lines(text))
        tried = []
        for at, mark in enumerate(",;\t|"):
            rows = [row for row, *_ in islice(_read_rows(text, lines, mark), COMPARED_ROWS)]
            tried.append((*_most_common(map(len, rows)), -at, mark, rows))
        times, columns, _, mark, rows = max(tried)
        if document.segments or not times:
            return document
        least = max(2, columns - 1)  # a column of numbers may have no name
        full = (
            at
            for at, row in enumerate(rows)
            if len(row) >= columns and sum(map(bool, row)) >= least
        )
        first = next(full, 0)
        spans = [(begin, last) for _, begin, last in _read_rows(text, lines, mark)]
        atomic = [(lines[begin].start, lines[last].end) for begin, last in spans if begin < last]
        has_names = columns > 1 and names_columns(rows[first:], may_be_form=False)
        start = lines[spans[first][0]].start
        tables = make_table(start, len(text), [rows[first]]) if has_names else ()
        return replace(document, tables=tuple(tables), atomic=tuple(atomic))


def _most_common(numbers: Iterable[int]) -> tuple[int, int]:
    """Return how often the most frequent number over 1 occurs, and that number."""
    counts = Counter(number for number in numbers if number > 1)
    return max(((count, number) for number, count in counts.items()), default=(0, 1))


def _read_rows(text: str, lines: list[Line], mark: str) -> Iterator[tuple[list[str], int, int]]:
    """Yield the cells of each row, and the indexes of its first and last line.

    It ends at a row that the library refuses, such as one with a quotation that is not closed.
    """
    reader = csv.reader((text[line.start : line.next] for line in lines), delimiter=mark)
    begin = 0
    with suppress(csv.Error):
        for row in reader:
            if row:
                yield [cell.strip() for cell in row], begin, reader.line_num - 1
            begin = reader.line_num


_FOLDED = re.compile(
    r"(?:[^\n:]*;(?:ENCODING=)?QUOTED-PRINTABLE(?:[^\n]*=\r?\n)*+)?[^\n]*+(?:\n[ \t][^\n]*+)*+\n?",
    re.IGNORECASE,
)
_PROPERTY = re.compile(r'([\w.-]++(?:;[^":]*+(?:"[^"]*+"[^":]*+)*+)?):\s*+')
_QUOTED = re.compile(r";(?:ENCODING=)?QUOTED-PRINTABLE|;CHARSET=[\w-]++", re.IGNORECASE)
_MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?")


class CalendarReader(CodeReader):
    """Read calendars and contacts: folded lines are joined, escapes and dates written out."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document; its places are the lines of the file."""
        builder, at, number, shown = PlacesBuilder("line"), 0, 1, list[str]()
        for folded in filter(None, _FOLDED.findall(text)):
            builder.add(at, number)
            line = re.sub(r"(?<!=)\r?\n[ \t]?", "", folded.rstrip("\r\n"))
            shown.append(_write_property(line))
            at += len(shown[-1]) + 1
            number += folded.count("\n")
        return replace(super().parse("\n".join(shown), path), places=builder.places())


def _write_property(line: str) -> str:
    match = _PROPERTY.match(line)
    name, value = (match[1], line[match.end() :]) if match is not None else ("", line)
    if _QUOTED.search(name):
        name, value = _QUOTED.sub("", name), decode(quopri.decodestring(value.encode()))
    elif moment := _MOMENT.fullmatch(value):
        clock = f" {moment[4]}:{moment[5]}{moment[6]}" if moment[4] else ""
        value = f"{moment[1]}-{moment[2]}-{moment[3]}{clock}"
    else:
        value = re.sub(r"\\([,;:\\nN])", lambda at: "\n" if at[1] in "nN" else at[1], value)
    return f"{name}: {value}" if name else value


_MARKS = "\u0308\u0301\u0300\u0302\u0303\u0304\u0307\u0327\u030c\u0306\u030b\u0328"
_ACCENTS = dict(zip("\"'`^~=.cvuHk", _MARKS, strict=True))
_SIGNS = dict(zip(("ss", "ae", "AE", "aa", "AA", *"oOlL"), "ßæÆåÅøØłŁ", strict=True))
_LETTER = re.compile(
    r"""\\(["'`^~=.]|[cvuHk](?=[ {])) ?(?:\{\\?([A-Za-z])\}|\\?([A-Za-z]))"""
    rf"|\\({'|'.join(_SIGNS)})(?![A-Za-z])(?:\{{\}}|\s)?"
)
_IN_BRACES = re.compile(r"(?<!=)(?<!= )(?<!\w)\{([^{}=]*+)\}|(?<=\w)\{([^{}=,]*+)\}")


def _tex_letters(text: str) -> str:
    r"""Return text with letters of TeX as such: ``M{\"u}ller`` is ``M{ü}ller``."""
    text = _LETTER.sub(lambda at: _SIGNS.get(at[4]) or (at[2] or at[3]) + _ACCENTS[at[1]], text)
    return unicodedata.normalize("NFC", re.sub(r"(?<=[\w}.])~(?=\w)", " ", text))


class BibtexReader(CodeReader):
    """Read references in BibTeX, with TeX's accents as such and without braces inside a field."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document, line by line as in the file."""
        return super().parse(_IN_BRACES.sub(r"\1\2", _tex_letters(text)), path)


class OrgReader(PlainTextReader):
    """Read Org, where stars begin a heading; the document's title is a heading without a mark."""

    heading = re.compile(r"(?:(?P<mark>\*{1,12}) |(?i:#\+title:))(?P<title>.*)")
    levels: ClassVar[Sequence[str]] = ["*" * count for count in range(1, 13)]
    noise = re.compile(
        r"\A(?:(?:TODO|DONE|NEXT|WAITING|CANCELLED)\s{1,9})?(?:\[#\w\]\s{1,9})?"
        r"|\s:[\w@#%:]{1,200}:\Z"
    )
    opener = re.compile(r"\s{0,40}#\+begin_(?P<block>\w{1,40})\b.*", re.IGNORECASE)
    closer = "#+end_{}"

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document unchanged, with its headings, or as a transcript."""
        document = super().parse(text, path)
        if document.segments:
            return document
        titles, headings, atomic = list[str](), list[Heading](), list[tuple[int, int]]()
        closer, began = None, 0
        for line in iter_lines(text):
            raw = text[line.start : line.end].rstrip() if line.end - line.start < 1000 else ""
            if closer is not None:
                if raw.strip().casefold() == closer:
                    atomic.append((began, line.end))
                    closer = None
            elif opener := self.opener.fullmatch(raw):
                closer, began = self.closer.format(opener["block"]).casefold(), line.start
            elif match := self.heading.fullmatch(raw):
                title = one_line(self.noise.sub("", _tex_letters(match["title"].strip())))
                titles += [] if match["mark"] else [title]
                if title and match["mark"]:
                    level = 1 + self.levels.index(match["mark"])
                    headings.append(Heading(line.start, line.end, level, title))
        title = choose_title(path, *titles, *(heading.title for heading in headings[:1]))
        return replace(document, title=title, headings=tuple(headings), atomic=tuple(atomic))


class AsciiDocReader(OrgReader):
    """Read AsciiDoc, where equals signs begin a heading."""

    heading = re.compile(r"(?P<mark>={1,6})[ \t](?P<title>.*)")
    levels: ClassVar[Sequence[str]] = ["=" * count for count in range(1, 7)]
    noise = re.compile(r"(?!)")
    opener = re.compile(r"(?P<block>-{4,}|\.{4,}|={4,}|\*{4,}|_{4,}|\+{4,}|/{4,})")
    closer = "{}"


class LatexReader(OrgReader):
    r"""Read LaTeX, where ``\section`` and its like begin a heading."""

    declares_encoding = True
    levels = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
    heading = re.compile(
        rf"\s{{0,40}}\\(?:(?P<mark>{'|'.join(levels)})|title)\*?(?:\[[^\[\]]*\])?"
        r"\{(?P<title>(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+).*"
    )
    noise = re.compile(r"\\[A-Za-z]{1,40}\*?\s{0,3}|[{}]|\\(?=[&%$#_])")
    opener = re.compile(r"\s{0,40}\\begin\{(?P<block>[vV]erbatim\*?|lstlisting|minted|comment)\}.*")
    closer = r"\end{{{}}}"


class ManualReader(OrgReader):
    """Read a manual page, where ``.SH`` and ``.SS`` begin a heading."""

    heading = re.compile(r"\.(?:(?P<mark>SH|SS)|TH)[ \t]{1,9}(?P<title>(?(mark).*|\S{1,100})).*")
    levels = ("SH", "SS")
    noise = re.compile(r"\\f(?:\[\w{0,20}\]|\(..|.)|\\&|\\(?=-)|\A\"|\"\Z")
    opener = re.compile(r"(?!)")
