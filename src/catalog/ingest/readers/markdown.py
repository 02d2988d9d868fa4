"""Markdown: front matter, headings, code fences and tables; transcripts and captions in it.

markdown-it-py finds the blocks and their lines. Marks within a heading are removed here, because
its parser of inline marks takes quadratic time.
"""

import html
import re
import string
from bisect import bisect_right
from dataclasses import replace
from itertools import groupby, islice

from markdown_it import MarkdownIt

from catalog.core.documents import Heading, ParsedDocument, Table
from catalog.ingest.chunking.boundaries import Line, iter_lines
from catalog.ingest.readers.base import WholeFileReader, choose_title, file_type, one_line
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, write_scripts
from catalog.ingest.readers.metadata import (
    LEVEL,
    normalise,
    one_level,
    read_front_matter,
    take_title,
)
from catalog.ingest.readers.tables import make_table
from catalog.ingest.readers.timed.converted import add_segments, read_converter_header
from catalog.ingest.readers.timed.frames import normalise_recording


class MarkdownReader(WholeFileReader):
    """Read text as written, without the front matter and the header of a converter."""

    def parse(self, text: str, path: str) -> ParsedDocument:
        """Return the document; its title is in front matter, the first heading or the stem."""
        front_matter, body_start, end, problem = read_front_matter(text)
        metadata, recording, fields = normalise(front_matter), {}, front_matter
        if header := read_converter_header(text, body_start):
            told, text = header
            fields, recording = {**told, **fields}, normalise_recording(told)
        title = take_title(metadata)
        is_shown = not body_start and (problem or front_matter)  # fields that stay part of the text
        headings, atomic, tables, tags = scan_markdown(text, end if is_shown else body_start)
        level = one_level(recording.get(LEVEL), metadata.get(LEVEL))
        tagged = normalise({"tags": metadata.get("tags"), "keywords": tags}) if tags else {}
        named = choose_title(path, title, *(heading.title for heading in headings[:1]))
        document = ParsedDocument(
            path, text, named, file_type(path), remarks=(problem,) * bool(problem)
        )
        document = replace(document, headings=headings, atomic=atomic, tables=tables)
        metadata, written = {**recording, **metadata, **level, **tagged}, frozenset(metadata)
        written |= {"title"} if title else set()
        document = replace(document, metadata=metadata, written=written, body_start=body_start)
        return add_segments(document, fields, has_header=header is not None)


_CODE = re.compile(r"(?<!`)(`++)(.+?)(?<!`)\1(?!`)|\\([!-/:-@\[-`{-~])")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])")
_PLAIN = re.compile(r"[^`\\\[<&*_~{\ue000-\ue07f]*+")
_SCRIPT = re.compile(r"<(/?)su([pb])>", re.IGNORECASE)
_MARKS = re.compile(
    r"<(?P<address>(?:https?|mailto|ftp):[^<>\s]++)>|</?[A-Za-z][^<>]*+>"
    r"|(?<!\s)\s*+\{[#.:][^{}]*+\}\s*+\Z"  # {#anchor}
    r"|(?<![\w*])\*{1,3}(?=[^\s*])|(?<=[^\s*])\*{1,3}(?![\w*])|~~"
    r"|(?<!\w)_(?P<lean>[^_\s]++(?:\s++[^_\s]++)*+)_(?!\w)"
    r"|(?<!\w)__(?P<bold>[^_\s]++(?:\s++[^_\s]++)++)__(?!\w)"  # and not __init__
)
_HIDE = {ord(sign): 0xE000 + ord(sign) for sign in string.punctuation}
_SHOW = {0xE000 + code: code for code in range(128)}


def plain_title(markup: str) -> str:
    """Return a heading as plain text; text in backticks stays unchanged."""
    if _PLAIN.fullmatch(markup):
        return one_line(markup)
    text = markup[:400].translate(dict.fromkeys(_SHOW))  # a title has 300
    text = _CODE.sub(lambda mark: (mark[2] or mark[3]).strip().translate(_HIDE), text)
    text = _LINK.sub(r"\1", _LINK.sub(r"\1", text))  # also a link round an image
    text = _SCRIPT.sub(lambda it: CLOSED if it[1] else RAISED if it[2] == "p" else LOWERED, text)
    text = _MARKS.sub(lambda mark: mark["address"] or mark["lean"] or mark["bold"] or "", text)
    return one_line(html.unescape(write_scripts(text)).translate(_SHOW))


_OUTLINE = re.compile(r"\s*+(?:[\w./-]++::[^\n]*+\n\s*+)*+- ")
_USUAL = re.compile(r"(\|)(?=.*\w)[^<>]*+|([^\W\d_])[^<>|]*+")  # a row of a table, or words
_BAR = re.compile(r"(?<!\\)\|")
_HTML_HEADING = re.compile(
    r"<h([1-6])\b[^<>]*+>((?:(?!</?h[1-6]\b).){1,400}+)</h\1>", re.IGNORECASE | re.DOTALL
)
_ALT = re.compile(r'\balt="([^"<>]*)"', re.IGNORECASE)
_RAW_HTML = re.compile(r"\s*<(?:!--|pre|script|style|textarea)", re.IGNORECASE)
_TAG = re.compile(
    r"(?<!\S)(?<!\]: )#(?!(?=[a-f]*\d)(?:[\da-f]{3}){1,2}\b)([^\W\d_][\w/-]{0,99})(?![\w/#-])"
)
_PARSER = MarkdownIt("commonmark", {"maxNesting": 24}).enable("table").disable("reference")
_PARSER.core.ruler.enableOnly(["block"])


def scan_markdown(
    text: str, start: int = 0
) -> tuple[tuple[Heading, ...], tuple[tuple[int, int], ...], tuple[Table, ...], tuple[str, ...]]:
    """Return the headings of ``text[start:]``, the spans not to cut, the tables, and the tags.

    Such spans are code fences and tables. Headings in lists and quotations do not count, except in
    a text that is one list from its beginning, as Logseq writes it.
    """

    def kind(line: Line) -> int | None:
        usual = _USUAL.fullmatch(text, line.start, line.end)
        return usual and usual.lastindex

    lines = list[Line]()
    # The parser takes long for each line; one between five others of its kind changes nothing.
    for number, run in groupby(iter_lines(text, start), kind):
        alike = list(run)
        lines += alike[:5] + alike[5:][-5:] if number else alike
    tokens = _PARSER.parse("\n".join(text[line.start : line.end] for line in lines))
    is_outline = _OUTLINE.match(text, start) is not None
    headings, atomic, tables, apart = list[Heading](), [], list[Table](), [(start, start)]
    for token, inner in zip(tokens, tokens[1:] + tokens[-1:], strict=True):
        if not token.map:
            continue
        first, last = token.map
        begin, end = lines[first].start, lines[last - 1].end
        if token.type == "heading_open" and (is_outline or not token.level):
            apart.append((begin, end))
            is_rule = token.markup in "=-" and last - first > 4  # under a longer paragraph
            title = plain_title(inner.content) or one_line(inner.content)
            if title and not is_rule:
                headings.append(Heading(begin, end, int(token.tag[1]), title))
        elif token.type == "table_open":
            atomic.append((begin, end))
            names = text[begin : lines[first].end].strip().strip("|")
            tables += make_table(begin, end, [_BAR.split(names)])
        elif token.type in ("fence", "code_block") or _RAW_HTML.match(token.content):
            apart.append((begin, end))
            atomic += [(begin, end)] if token.type == "fence" else []

    def is_text(match: re.Match[str]) -> bool:
        before = text[max(start, match.start() - 1000) : match.start()].rpartition("\n")[2]
        end = apart[bisect_right(apart, (match.start(), len(text))) - 1][1]
        return match.start() >= end and before.count("`") % 2 == 0

    for match in filter(is_text, _HTML_HEADING.finditer(text, start)):
        if title := plain_title(match[2]) or one_line(" ".join(_ALT.findall(match[2]))):
            headings.append(Heading(match.start(), match.end(), int(match[1]), title))
    headings.sort(key=lambda heading: heading.start)
    tags = islice(filter(is_text, _TAG.finditer(text, start)), 100)
    return tuple(headings), tuple(atomic), tuple(tables), tuple(match[1] for match in tags)
