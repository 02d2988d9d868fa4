r"""Text as written: plain text, tables, code, calendars, and markup whose headings are one line.

Literal blocks (``#+begin_src``, ``----``, ``\begin{verbatim}``) stay whole and have no headings.
"""

import csv
import quopri
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath

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
        return ParsedDocument(path, text, choose_title(path), file_type(path))


class PlainTextReader(WholeFileReader):
    """Read text unchanged, but as a transcript if its lines begin with times; a log stays a log."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        document, suffixes = CodeReader().parse(text, path), PurePosixPath(path.lower()).suffixes
        return document if ".log" in suffixes else add_segments(document, {})


class CsvReader(PlainTextReader):
    """Read rows unchanged; the names of their columns go with each passage of them.

    The delimiter is the one that gives most of the first rows one number of columns. Lines above
    the first row that fills as many cells are text.
    """

    def parse(self, text: str, path: str) -> ParsedDocument:
        document, lines, tried = super().parse(text, path), list(iter_lines(text)), [(0, 1, 0, ",")]
        for at, mark in enumerate(",;\t|"):
            first_rows = islice(_read_rows(text, lines, mark), COMPARED_ROWS)
            counts = Counter(len(row) for row, *_ in first_rows if len(row) > 1)
            tried += ((times, columns, -at, mark) for columns, times in counts.items())
        times, columns, _, mark = max(tried)
        if document.segments or not times:
            return document
        rows = list(_read_rows(text, lines, mark))
        least = max(2, columns - 1)  # a column of numbers may have no name
        is_full = [
            len(row) >= columns and sum(map(bool, row)) >= least for row, *_ in rows[:COMPARED_ROWS]
        ]
        top = rows[is_full.index(True) if any(is_full) else 0 : COMPARED_ROWS]
        has_names = names_columns([row for row, *_ in top], may_be_form=False)
        tables = make_table(lines[top[0][1]].start, len(text), [top[0][0]]) if has_names else ()
        atomic = [(lines[begin].start, lines[last].end) for _, begin, last in rows if begin < last]
        return replace(document, tables=tuple(tables), atomic=tuple(atomic))


def _read_rows(text: str, lines: list[Line], mark: str) -> Iterator[tuple[list[str], int, int]]:
    """Yield the cells of each row, and its first and last line."""
    reader = csv.reader((text[line.start : line.next] for line in lines), delimiter=mark)
    begin = 0
    with suppress(csv.Error):  # such as a quotation that is not closed
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
        return super().parse(_IN_BRACES.sub(r"\1\2", _tex_letters(text)), path)


class OrgReader(PlainTextReader):
    """Read Org, where stars begin a heading; the document's title is a heading without a mark."""

    heading = re.compile(r"(?:(?P<mark>\*{1,12}) |(?i:#\+title:))(?P<title>.*)")
    levels: Sequence[str] = ()  # the marks, if their length is not the level
    noise = re.compile(r"\A(?:(?:TODO|DONE|NEXT|WAITING) )?(?:\[#\w\] )?|\s:[\w@#%:]{1,200}:\Z")
    opener = re.compile(r"\s{0,40}#\+begin_(?P<block>\w{1,40})\b.*", re.IGNORECASE)
    closer = "#+end_{}"

    def parse(self, text: str, path: str) -> ParsedDocument:
        if (document := super().parse(text, path)).segments:
            return document
        titles, headings, atomic = list[str](), list[Heading](), list[tuple[int, int]]()
        closer, began = "", 0
        for line in iter_lines(text):
            raw = text[line.start : line.end].rstrip() if line.end - line.start < 1000 else ""
            if closer:
                if raw.strip().casefold() == closer:
                    atomic.append((began, line.end))
                    closer = ""
            elif opener := self.opener.fullmatch(raw):
                closer, began = self.closer.format(opener["block"]).casefold(), line.start
            elif match := self.heading.fullmatch(raw):
                title = one_line(self.noise.sub("", _tex_letters(match["title"].strip())))
                if not (mark := match["mark"]):
                    titles.append(title)
                elif title:
                    level = 1 + self.levels.index(mark) if self.levels else len(mark)
                    headings.append(Heading(line.start, line.end, level, title))
        title = choose_title(path, *titles, *(heading.title for heading in headings[:1]))
        return replace(document, title=title, headings=tuple(headings), atomic=tuple(atomic))


class AsciiDocReader(OrgReader):
    """Read AsciiDoc, where equals signs begin a heading."""

    heading = re.compile(r"(?P<mark>={1,6})[ \t](?P<title>.*)")
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
