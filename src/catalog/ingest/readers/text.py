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
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath
from typing import ClassVar

from catalog.core.documents import Heading, ParsedDocument
from catalog.core.places import PlacesBuilder
from catalog.ingest.chunking.boundaries import iter_lines
from catalog.ingest.readers.base import WholeFileReader, choose_title, file_type, one_line
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.tables import make_table, names_columns
from catalog.ingest.readers.timed.converted import add_segments


class CodeReader(WholeFileReader):
    """Read text that may name its encoding: ``# -*- coding: latin-1 -*-``, ``<?xml …?>``."""

    declares_encoding = True

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document unchanged."""
        title = choose_title(path)
        return ParsedDocument(path=path, text=text, title=title, file_type=file_type(path))


class YamlReader(CodeReader):
    """Read YAML; text between ``---`` is data there and not front matter."""


class PlainTextReader(WholeFileReader):
    """Read text unchanged, except if its lines begin with times."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document unchanged, or as a transcript; a ``.log`` stays a log."""
        document = CodeReader().parse(text, path)
        if ".log" in PurePosixPath(path.lower()).suffixes:
            return document
        return add_segments(document, {})


_DIRECTIVE = re.compile(r'"?sep=([^\r\n"])"?(?=\r?\n)', re.IGNORECASE)
"""The first line by which Excel is told the delimiter."""
_ROWS_COMPARED = 50


class CsvReader(PlainTextReader):
    """Read rows unchanged; the names of their columns go with each passage of them.

    Of the delimiters it is the one that gives most of the first rows one number of columns. Lines
    above the first row that fills as many cells as most are text.
    """

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document with its table and rows of several lines, or as a transcript."""
        told = _DIRECTIVE.match(text)
        if told is not None:
            text = text[told.end() :]  # from its line end on: the lines keep their numbers
        document = super().parse(text, path)
        tried = [
            (*counted, -at, mark, rows)
            for at, mark in enumerate(",;\t|" if told is None else told[1])
            if (rows := [row for row, *_ in islice(_read_rows(text, mark), _ROWS_COMPARED)])
            and (counted := _most_common([len(row) for row in rows]))
        ]
        if document.segments or not tried:
            return document
        _, columns, _, mark, rows = max(tried)
        filled = [sum(map(bool, row)) if len(row) >= columns else 0 for row in rows]
        _, usual = _most_common([count for count in filled if count])
        least = max(min(usual, 2), usual - 1)  # a column of numbers may have no name
        first = next(number for number, count in enumerate(filled) if count >= least)
        starts, atomic = [], []
        for _, start, end, has_lines in _read_rows(text, mark):
            starts.append(start)
            atomic += [(start, end)] if has_lines else []
        has_names = columns > 1 and names_columns(rows[first:], may_be_form=False)
        tables = make_table(starts[first], len(text), [rows[first]]) if has_names else ()
        return replace(document, tables=tuple(tables), atomic=tuple(atomic))


def _most_common(numbers: list[int]) -> tuple[int, int]:
    """Return how often the most frequent number occurs (0 times if it is 1), and that number."""
    counts = Counter(numbers)
    number = max(counts, key=lambda one: (counts[one], one))
    return counts[number] if number > 1 else 0, number


def _read_rows(text: str, delimiter: str) -> Iterator[tuple[list[str], int, int, bool]]:
    """Yield the cells of each row, its start and end, and whether it has several lines.

    It ends at a row that the library refuses, such as one with a quotation that is not closed.
    """
    spans = list[tuple[int, int]]()

    def lines() -> Iterator[str]:
        for line in iter_lines(text):
            spans.append((line.start, line.end))
            yield text[line.start : line.next]

    with suppress(csv.Error):
        for row in csv.reader(lines(), delimiter=delimiter):
            if row:
                yield [cell.strip() for cell in row], spans[0][0], spans[-1][1], len(spans) > 1
            spans.clear()


_PROPERTY = re.compile(r'([\w.-]++(?:;[^":]*+(?:"[^"]*+"[^":]*+)*+)?):\s*+')
_QUOTED = re.compile(r";(?:ENCODING=)?QUOTED-PRINTABLE|;CHARSET=[\w-]++", re.IGNORECASE)
_MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?")


class CalendarReader(CodeReader):
    """Read calendars and contacts: folded lines are joined, escapes and dates written out."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document; its places are the lines of the file."""
        properties: list[tuple[int, list[str]]] = []
        for number, line in enumerate(iter_lines(text), start=1):
            raw, parts = text[line.start : line.end], properties[-1][1] if properties else [""]
            if parts[-1].endswith("=") and _QUOTED.search(parts[0]):
                parts[-1:] = [parts[-1][:-1], raw]
            elif properties and raw[:1] in ("\t", " "):
                parts.append(raw[1:])
            else:
                properties.append((number, [raw]))
        builder, at, shown = PlacesBuilder("line"), 0, list[str]()
        for number, parts in properties:
            builder.add(at, number)
            shown.append(_write_property("".join(parts)))
            at += len(shown[-1]) + 1
        return replace(super().parse("\n".join(shown), path), places=builder.places())


def _write_property(line: str) -> str:
    match = _PROPERTY.match(line)
    name, value = (match[1], line[match.end() :]) if match is not None else ("", line)
    if _QUOTED.search(name):
        name, value = _QUOTED.sub("", name), decode(quopri.decodestring(value.encode()))
    elif moment := _MOMENT.fullmatch(value):
        value = f"{moment[1]}-{moment[2]}-{moment[3]}"
        value += f" {moment[4]}:{moment[5]}{moment[6]}" if moment[4] else ""
    else:
        value = re.sub(r"\\([,;:\\nN])", lambda at: "\n" if at[1] in "nN" else at[1], value)
    return f"{name}: {value}" if name else value


_MARKS = "\u0308\u0301\u0300\u0302\u0303\u0304\u0307\u0327\u030c\u0306\u030b\u0328"
_ACCENTS = dict(zip("\"'`^~=.cvuHk", _MARKS, strict=True))
_SIGNS = dict(zip(("ss", "ae", "AE", "aa", "AA", *"oOlL"), "ßæÆåÅøØłŁ", strict=True))
_TEX_LETTER = re.compile(
    r"""\{?\\(?:(["'`^~=.]|[cvuHk](?=[ {])) ?\{?\\?([A-Za-z])\}?"""
    rf"|({'|'.join(_SIGNS)})(?![A-Za-z])(?:\{{\}}|\s)?)\}}?"
)
_IN_BRACES = re.compile(r"(?<!=)(?<!= )(?<!\w)\{([^{}=]*+)\}|(?<=\w)\{([^{}=,]*+)\}")


def _tex_letters(text: str) -> str:
    r"""Return text with the letters of TeX as such: ``M{\"u}ller`` is Müller."""
    text = _TEX_LETTER.sub(lambda at: _SIGNS.get(at[3]) or at[2] + _ACCENTS[at[1]], text)
    return unicodedata.normalize("NFC", text)


class BibtexReader(CodeReader):
    """Read references in BibTeX, with TeX's letters as such and without braces inside a field."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document, line by line as in the file."""
        return super().parse(_IN_BRACES.sub(r"\1\2", _tex_letters(text)), path)


class OrgReader(PlainTextReader):
    """Read Org, where stars begin a heading. Each pattern is for a whole line.

    ``heading`` has the groups ``mark``, which gives the level (its place in ``levels``, otherwise
    its length), and ``title``. ``noise`` is left out of titles. ``opener`` has the group ``block``,
    and a literal block ends at the line ``closer`` with it.
    """

    heading = re.compile(r"(?P<mark>\*{1,12}) (?P<title>.*)")
    levels: ClassVar[Sequence[str]] = ()
    noise = re.compile(
        r"\A(?:(?:TODO|DONE|NEXT|WAITING|CANCELLED)\s{1,9})?(?:\[#\w\]\s{1,9})?"
        r"|\s:[\w@#%:]{1,200}:\Z"
    )
    title = re.compile(r"#\+title:(?P<title>.*)", re.IGNORECASE)
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
            elif match := self.heading.fullmatch(raw) or self.title.fullmatch(raw):
                mark, title = match.groupdict().get("mark"), self.clean(match["title"])
                level = 1 + self.levels.index(mark) if mark in self.levels else len(mark or "")
                titles += [] if mark else [title]
                headings += [Heading(line.start, line.end, level, title)] if mark and title else []
        title = choose_title(path, *titles, *(heading.title for heading in headings[:1]))
        return replace(document, title=title, headings=tuple(headings), atomic=tuple(atomic))

    def clean(self, title: str) -> str:
        """Return a title as plain text on one line."""
        return one_line(self.noise.sub("", title.strip()))


class AsciiDocReader(OrgReader):
    """Read AsciiDoc, where equals signs begin a heading."""

    heading = re.compile(r"(?P<mark>={1,6})[ \t](?P<title>.*)")
    noise = title = re.compile(r"(?!)")
    opener = re.compile(r"(?P<block>-{4,}|\.{4,}|={4,}|\*{4,}|_{4,}|\+{4,}|/{4,})")
    closer = "{}"


class LatexReader(OrgReader):
    r"""Read LaTeX, where ``\section`` and its like begin a heading."""

    declares_encoding = True
    levels = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
    _in_braces = r"\{(?P<title>(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+).*"
    heading = re.compile(
        rf"\s{{0,40}}\\(?P<mark>{'|'.join(levels)})\*?(?:\[[^\[\]]*\])?{_in_braces}"
    )
    noise = re.compile(r"\\[A-Za-z]{1,40}\*?\s{0,3}|[{}]|\\(?=[&%$#_])")
    title = re.compile(rf"\s{{0,40}}\\title{_in_braces}")
    opener = re.compile(r"\s{0,40}\\begin\{(?P<block>[vV]erbatim\*?|lstlisting|minted|comment)\}.*")
    closer = r"\end{{{}}}"

    def clean(self, title: str) -> str:
        """Return a title with the letters of TeX as such and without commands."""
        return super().clean(_tex_letters(title).replace("~", " "))


class ManualReader(OrgReader):
    """Read a manual page, where ``.SH`` and ``.SS`` begin a heading."""

    heading = re.compile(r"\.(?P<mark>SH|SS)[ \t](?P<title>.*)")
    levels = ("SH", "SS")
    noise = re.compile(r"\\f(?:\[\w{0,20}\]|\(..|.)|\\&|\\(?=-)|\A\"|\"\Z")
    title = re.compile(r"\.TH[ \t]{1,9}(?P<title>\S{1,100}).*")
    opener = re.compile(r"(?!)")
