r"""Org, AsciiDoc, LaTeX and manual pages: text as written, with its title and headings.

A heading is one line. Lines in literal blocks (``#+begin_src``, ``----``, ``\begin{verbatim}``) are
none, and these blocks stay whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from catalog.core.documents import Heading, ParsedDocument
from catalog.ingest.chunking.boundaries import iter_lines
from catalog.ingest.readers.base import choose_title, one_line
from catalog.ingest.readers.plain import PlainTextReader

_MAX_LINE = 1000
"""A longer line is no heading."""
_ACCENTS = {'"': "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303"}
_ACCENT = re.compile(r"""\\(["'`^~])\{?([A-Za-z])\}?""")
_COMMAND = re.compile(r"\\(?:[A-Za-z]{1,40}\*?\s{0,3}|[&%$#_{}])|[{}]")
_TEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_ORG_STATE = re.compile(r"(?:(?:TODO|DONE|NEXT|WAITING|CANCELLED)\s{1,9})?(?:\[#\w\]\s{1,9})?")
_ORG_TAGS = re.compile(r"\s:[\w@#%:]{1,200}:\Z")
_ROFF = re.compile(r"\\f(?:\[\w{0,20}\]|\(..|.)|\\&")


@dataclass(frozen=True, slots=True)
class _Markup:
    """How a format marks things, each pattern for a whole line.

    ``heading`` has the groups ``mark``, which gives the level, and ``title``. ``opener`` has the
    group ``block``, and a literal block ends at the line ``closer`` with it.
    """

    heading: re.Pattern[str]
    level: Callable[[str], int]
    clean: Callable[[str], str]
    title: re.Pattern[str] | None = None
    opener: re.Pattern[str] | None = None
    closer: str = "{}"


def _clean_org(title: str) -> str:
    title = title.strip()
    return _ORG_TAGS.sub("", _ORG_STATE.sub("", title, count=1))


def _clean_tex(title: str) -> str:
    """Return the title to its closing brace, with accents as letters and without commands."""
    depth = 0
    for at, sign in enumerate(title):
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            title = title[:at]
            break
    title = _ACCENT.sub(lambda match: match[2] + _ACCENTS[match[1]], title)
    title = _COMMAND.sub(
        lambda match: match[0][1:] if match[0][1:] in tuple("&%$#_") else "", title
    )
    return unicodedata.normalize("NFC", title).replace("~", " ")


def _clean_man(title: str) -> str:
    return _ROFF.sub("", title).replace("\\-", "-").strip(' "')


class OrgReader(PlainTextReader):
    """Read Org, where stars begin a heading."""

    markup: ClassVar[_Markup] = _Markup(
        re.compile(r"(?P<mark>\*{1,12}) (?P<title>.*)"),
        len,
        _clean_org,
        title=re.compile(r"#\+title:(?P<title>.*)", re.IGNORECASE),
        opener=re.compile(r"\s{0,40}#\+begin_(?P<block>\w{1,40})\b.*", re.IGNORECASE),
        closer="#+end_{}",
    )

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document unchanged, with its headings, or as a transcript."""
        document = super().parse(text, path)
        if document.segments:
            return document
        title, headings, atomic = self._scan(text)
        first = headings[0].title if headings else None
        title = choose_title(path, title, first)
        return replace(document, title=title, headings=tuple(headings), atomic=tuple(atomic))

    def _scan(self, text: str) -> tuple[str | None, list[Heading], list[tuple[int, int]]]:
        markup, title = self.markup, None
        headings: list[Heading] = []
        atomic: list[tuple[int, int]] = []
        closer, began = None, 0
        for line in iter_lines(text):
            if line.end - line.start > _MAX_LINE:
                continue
            raw = text[line.start : line.end].rstrip()
            if closer is not None:
                if raw.strip().casefold() == closer:
                    atomic.append((began, line.end))
                    closer = None
            elif markup.opener is not None and (opener := markup.opener.fullmatch(raw)):
                closer, began = markup.closer.format(opener["block"]).casefold(), line.start
            elif match := markup.heading.fullmatch(raw):
                if name := one_line(markup.clean(match["title"])):
                    level = markup.level(match["mark"])
                    headings.append(Heading(line.start, line.end, level, name))
            elif title is None and markup.title and (match := markup.title.fullmatch(raw)):
                title = markup.clean(match["title"])
        return title, headings, atomic


class AsciiDocReader(OrgReader):
    """Read AsciiDoc, where equals signs begin a heading."""

    markup = _Markup(
        re.compile(r"(?P<mark>={1,6})[ \t](?P<title>.*)"),
        len,
        str.strip,
        opener=re.compile(r"(?P<block>-{4,}|\.{4,}|={4,}|\*{4,}|_{4,}|\+{4,}|/{4,})"),
    )


class LatexReader(OrgReader):
    r"""Read LaTeX, where ``\section`` and its like begin a heading."""

    declares_encoding = True
    markup = _Markup(
        re.compile(
            rf"\s{{0,40}}\\(?P<mark>{'|'.join(_TEX_LEVELS)})\*?(?:\[[^\[\]]*\])?\{{(?P<title>.*)"
        ),
        lambda mark: 1 + _TEX_LEVELS.index(mark),
        _clean_tex,
        title=re.compile(r"\s{0,40}\\title\{(?P<title>.*)"),
        opener=re.compile(
            r"\s{0,40}\\begin\{(?P<block>verbatim\*?|lstlisting|minted|comment|Verbatim)\}.*"
        ),
        closer=r"\end{{{}}}",
    )


class ManualReader(OrgReader):
    """Read a manual page, where ``.SH`` and ``.SS`` begin a heading."""

    markup = _Markup(
        re.compile(r"\.(?P<mark>SH|SS)[ \t](?P<title>.*)"),
        lambda mark: 1 if mark == "SH" else 2,
        _clean_man,
        title=re.compile(r"\.TH[ \t]{1,9}(?P<title>\S{1,100}).*"),
    )
