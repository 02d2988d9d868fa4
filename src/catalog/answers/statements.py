"""Read the statements of a passage: sentences, list items and table rows, with their context.

A statement often means something only together with what stands above it: ``75 %`` with the name
of its column, an item with the heading *Not OK*, an answer with its question. Headings, code,
tables of contents and lines of links are no statements.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import NamedTuple

from catalog.core.documents import find_columns
from catalog.ingest.chunking.boundaries import Line, iter_lines, sentence_spans

_LONGEST = 400  # characters of a sentence; a longer one is taken line by line
_LONGEST_HEADING = 80
_LOWEST = 7  # the level of headings without one
_FENCE = re.compile(r"\s*+(?:```|~~~)")
_HEADING = re.compile(r"\s*+(#{1,6})\s++(.*)")
_UNDERLINE = re.compile(r"\s*+([=\-~^\"'*+#.])\1{2,}\s*+\Z")
_FRAME = "=-_*"  # around a title: === TITLE ===
_BOLD = re.compile(r"\s*+(?:\*\*|__)([^*_]++)(?:\*\*|__)\s*+:?+\s*+\Z")
_ITEM = re.compile(r"\s*+(?:[-*+•]|\d{1,3}[.)]|\[[ xX]\])\s++(?:\[[ xX]\]\s++)?")
_RULE = re.compile(r"[\s:|+=-]*+\Z")
_QUOTED = re.compile(r"\s*+(?:>\s*+)++")
_LINK = re.compile(
    r"!?\[\[[^\[\]\n]*+\]\]|!?\[[^\[\]\n]*+\]\([^()\n]*+\)|https?://\S++|(?<!\S)[^\s@]++@\S++"
)
_NO_TEXT = re.compile(  # a line of code after its prompt; of a table of contents, up to its page
    r"\A\s*+(?:>>>|\.\.\.|\$|PS>)\s|(?<!\.)(?<!\. )(?:\. ?){4,}+\s*+\d++\s*+\Z"
)
_RIGHTS = re.compile(r"©|\ball rights reserved\b|\A\W*page \d+(?: of \d+)?\W*\Z", re.I)
_STRONG = re.compile(r"(?<![\w*])\*\*(?=\S)([^*\n]++)\*\*(?![\w*])")
_NUMBER = re.compile(r"[\d.,%$€£\s+-]+\Z")
_WORDS = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")
_MOST_COLUMNS = 40
_ALIKE = 0.8  # of the lines of CSV have as many cells as one another: some have line breaks
_LIST_LINE = re.compile(r"\s*+[A-ZÀ-Þ0-9][^\n]{0,78}[^\s.!?:;,]\s*\Z")  # of a list without marks
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_MOST_DENYING = 5  # words of a heading that denies what is under it; a longer one tells a story
_LABELS = re.compile(r"\W*+(?:[^\W_](?:[^:.!?\n]|:(?=\d)){0,40}:\s+){0,3}")  # Greta: Myth: …
_TABLE = tomllib.loads(files("catalog.answers").joinpath("statements.toml").read_text("utf-8"))
_ANY = {name: f"(?:{'|'.join(words)})" for name, words in _TABLE.items()}
_PRONOUN = re.compile(rf"\W*+{_ANY['goes_on']}\b", re.I)
_DENIES = re.compile(rf"\b{_ANY['denies']}\b|\bbad:?\s*\Z", re.I)
_TURNS = re.compile(rf"{_DENIES.pattern}|\b{_ANY['turns']}\b", re.I)
_ANSWERS = re.compile(rf"\W*+{_ANY['answers']}\b", re.I)  # what is before it, if it turns that
_STOPS = re.compile(r"[.!?…:]\W*\Z")
_NEAR = 80  # characters of its beginning in which it does so


class Statement(NamedTuple):
    """One statement: ``text[start:end]`` of the passage, and how it reads.

    ``context`` are the heading, the lead-in of a list or the question above it, outermost first.
    ``depends`` says that it means little without the last of them, as an item of a list does.
    The cells of a row have the names of their columns, and a sentence that begins with a pronoun
    has the sentence before it. ``turned`` is the sentence after it that turns its meaning, as
    *This is wrong.* does; ``text`` ends with it.
    """

    start: int
    end: int
    text: str
    context: tuple[str, ...] = ()
    depends: bool = False
    turned: str = ""

    def turned_by(self, words: str, end: int) -> Statement:
        """Return the statement together with what follows it and ends at ``end``."""
        stop = "" if _STOPS.search(self.text) else "."
        return self._replace(end=end, text=f"{self.text}{stop} {words}", turned=words)


def read_statements(text: str, headings: Sequence[str] = ()) -> Iterator[Statement]:
    """Yield the statements of a passage in their order.

    ``headings`` are those that the passage is known to stand under or to contain, outermost first.
    They find headings without marks. A heading above the passage is context if it turns the
    meaning of the text under it.
    """
    return _Reader(text, headings).read()


def turns_meaning(context: str) -> bool:
    """Return whether a heading or lead-in may turn the meaning of its text: *Not OK*, *2019*.

    >>> turns_meaning('Rejected proposals'), turns_meaning('Opening hours')
    (True, False)
    """
    return bool(_TURNS.search(context) or _YEAR.search(context))


def denies(context: str, *, most: int = _MOST_DENYING) -> bool:
    """Return whether a heading or lead-in of at most ``most`` words denies the text under it.

    >>> denies('Strictly prohibited'), denies('I do not see my files, what can I do')
    (True, False)
    """
    return len(_WORDS.findall(context)) <= most and _DENIES.search(context) is not None


def sentence_bounds(text: str) -> Iterator[tuple[int, int]]:
    """Yield where sentences begin and end: also headings, rows, and code line by line."""
    reader = _Reader(text)
    for kind, lines in reader.blocks():
        if kind in ("prose", "item"):
            yield from reader.cut(lines[0].start, lines[-1].end)
        else:
            yield from ((line.start, line.end) for line in lines if line.end > line.start)


class _Reader:
    """Reads a passage line by line, and keeps the context of the next statement."""

    def __init__(self, text: str, headings: Sequence[str] = ()) -> None:
        self._text = text
        self._lines = list(iter_lines(text))
        columns = find_columns(headings)
        headings = [one for one in headings if one not in columns]
        known = {" ".join(one.split()) for one in headings}
        titles = {
            _title(self._line(at)) for at in range(len(self._lines)) if self._line(at).strip()
        }
        self._known = known & titles
        above = [one for one in headings if " ".join(one.split()) not in titles]
        names = columns[0].strip("| ").split("|") if columns else []
        self._columns = [_plain(name) for name in names]
        lines = [text[one.start : one.end] for one in self._lines]
        self._delimiter = _find_delimiter(lines, len(self._columns))
        self._headings = [(0, one) for one in above if turns_meaning(one)]
        self._lead = self._parent = self._question = self._over = ""
        self._parent_indent = 0
        self._list_end = 0  # of a list without marks, which is read only once

    def read(self) -> Iterator[Statement]:
        waiting: list[Statement] = []  # of a paragraph or list, which the next one may turn
        of = ""
        for kind, lines in self.blocks():
            found = list(self._of_block(kind, lines))
            if kind == "none":
                continue
            if kind == "prose" and _QUOTED.match(self._text, lines[0].start):
                kind = "quote"
            if found and waiting and not waiting[-1].turned:
                is_all = kind in ("prose", "quote") and _answers(found[0].text)
                is_all &= question_of(found[0]) in ("", question_of(waiting[-1]))
                if is_all or (kind != "table" and is_denied(waiting[-1])):
                    turn, turned = found.pop(0), waiting if is_all else waiting[-1:]
                    turned = [one.turned_by(turn.text, turn.end) for one in turned]
                    waiting[-len(turned) :] = turned
            if kind != of or kind == "prose":
                yield from waiting
                waiting = []
            waiting += found
            of = kind
        yield from waiting

    def _of_block(self, kind: str, lines: list[Line]) -> Iterator[Statement]:
        start, end = lines[0].start, lines[-1].end
        if kind == "heading":
            self._enter(self._text[start:end])
        elif kind == "table":
            yield from self._rows(lines)
        elif kind == "item":
            yield from self._item(start, end)
        elif kind == "prose":
            self._over = self._lead if turns_meaning(self._lead) else ""
            self._lead = self._parent = ""
            yield from self._of_spans(list(self.cut(start, end)), is_item=False)

    def blocks(self) -> Iterator[tuple[str, list[Line]]]:
        """Yield the kind and the lines of each block: prose, item, table, heading, code, none."""
        at = 0
        while at < len(self._lines):
            kind, stop = self._block_at(at)
            yield kind, self._lines[at:stop]
            at = stop

    def cut(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the sentences of a paragraph; one that is too long line by line."""
        mark = _QUOTED.match(self._text, start, end)
        for low, high in sentence_spans(self._text, mark.end() if mark else start, end):
            if high - low <= _LONGEST:
                yield low, high
            else:
                yield from (
                    (max(low, first), min(high, last))
                    for first, last, _ in self._lines
                    if first < high and last > low
                )

    def _cells(self, line: str) -> list[str] | None:
        """Return the cells of a row of a table; ``None`` for any other line."""
        bare = line.strip()
        if self._delimiter is not None:
            cells = next(csv.reader([bare], delimiter=self._delimiter), [])
        elif " | " in bare or (bare.startswith("|") and bare.endswith("|") and len(bare) > 1):
            cells = bare.removeprefix("|").removesuffix("|").split("|")
        else:
            return None
        return [_plain(cell) for cell in cells] if 1 < len(cells) <= _MOST_COLUMNS else None

    def _line(self, at: int) -> str:
        line = self._lines[at]
        return self._text[line.start : line.end]

    def _block_at(self, at: int) -> tuple[str, int]:
        """Return the kind of the block that begins at a line, and the line after it."""
        lines, line = self._lines, self._line(at)
        following = at + 1
        if at < self._list_end:
            return "item", following
        if at == 0 and (end := self._end_of_cut_code()) is not None:
            return "code", end + 1
        if not line.strip() or _RULE.match(line) or _NO_TEXT.search(line):
            return "none", following
        if _FENCE.match(line):
            while following < len(lines) and not _FENCE.match(self._line(following)):
                following += 1
            return "code", following + 1
        if self._is_heading(at):
            underlined = following < len(lines) and _UNDERLINE.match(self._line(following))
            return "heading", following + bool(underlined)
        if self._cells(line):
            mark = self._delimiter or "|"
            while following < len(lines) and mark in self._line(following):
                following += 1
            return "table", following
        if line.lstrip().startswith("<!--"):
            while "-->" not in self._line(following - 1) and following < len(lines):
                following += 1
            return "none", following
        kind = "item" if _ITEM.match(line) else "prose"
        while following < len(lines) and self._continues(following, is_item=kind == "item"):
            following += 1
        is_list = kind == "prose" and following > at + 1
        if is_list and all(_LIST_LINE.match(self._line(one)) for one in range(at, following)):
            self._list_end = following
            return "item", at + 1  # without marks, as HTML gives it
        return kind, following

    def _end_of_cut_code(self) -> int | None:
        """Return the line of the fence that ends code in whose middle the passage begins, if any.

        The fences are odd in number then, the first names no language, and nothing before it is
        a heading or ends like a sentence.
        """
        fences = [at for at in range(len(self._lines)) if _FENCE.match(self._line(at))]
        if len(fences) % 2 == 0 or self._line(fences[0]).strip("`~ \t"):
            return None
        before = [self._line(at).rstrip() for at in range(fences[0])]
        is_prose = any(
            line.endswith((".", "!", "?", ":")) or _HEADING.match(line) for line in before
        )
        return None if is_prose else fences[0]

    def _is_heading(self, at: int) -> bool:
        line = self._line(at)
        bold = _BOLD.match(line)
        is_bold = bold is not None and bold[1].rstrip()[-1:] not in (".", "!", "?")
        if _HEADING.match(line) or is_bold:
            return True
        bare = line.strip()
        if bare in self._known:
            return True
        if len(bare) > _LONGEST_HEADING or _ITEM.match(line) or self._cells(line):
            return False
        if at + 1 < len(self._lines) and _UNDERLINE.match(self._line(at + 1)):
            return at == 0 or not self._line(at - 1).strip()
        letters = [one for one in bare if one.isalpha()]
        return len(letters) > 3 and all(map(str.isupper, letters)) and bare[-1] not in ".!?"

    def _continues(self, at: int, *, is_item: bool) -> bool:
        """Return whether a line goes on with the paragraph or item before it."""
        line = self._line(at)
        if not line.strip() or _FENCE.match(line) or _ITEM.match(line) or self._cells(line):
            return False
        if (
            _NO_TEXT.search(line)
            or self._is_heading(at)
            or _UNDERLINE.match(line)
            or _QUOTED.match(line)
        ):
            return False
        return not is_item or line[:1].isspace()

    def _enter(self, lines: str) -> None:
        """Note a heading; it ends those of its level and below."""
        match = _HEADING.match(lines)
        level = len(match[1]) if match else _LOWEST
        self._headings = [one for one in self._headings if one[0] < level]
        self._headings.append((level, _title(lines)))
        self._lead = self._parent = self._question = ""

    def _has_header(self, lines: list[Line]) -> bool:
        """Return whether the first row names the columns.

        In Markdown a rule follows it. Else none of its cells may be a number alone. In CSV none may
        have a digit, be empty or occur again, and the rows below must look otherwise: they have
        digits, capitals where it has none, or values that occur again.
        """
        rows = [self._text[one.start : one.end].strip() for one in lines]
        if rows[0].startswith("|"):
            return _RULE.match(rows[1]) is not None
        names = self._cells(rows[0]) or [""]
        if self._delimiter is None:
            return not any(map(_NUMBER.match, names))
        below = [self._cells(row) or [] for row in rows[1:]]
        cells = [(at, cell) for row in below for at, cell in enumerate(row) if cell]
        if not all(names) or any(map(_DIGIT.search, names)) or set(enumerate(names)) & set(cells):
            return False
        is_lower = "".join(names).islower() and not all(cell.islower() for _, cell in cells)
        has_digits = any(_DIGIT.search(cell) for _, cell in cells)
        return is_lower or has_digits or len(set(cells)) < len(cells)

    def _rows(self, lines: list[Line]) -> Iterator[Statement]:
        """Yield the rows of a table without its header, each cell with the name of its column.

        Where the passage begins within a table, the names are those that are known of it.
        """
        rows = [
            (line, self._cells(raw) or [])
            for line in lines
            if not _RULE.match(raw := self._text[line.start : line.end])
        ]
        is_known = not self._text[: lines[0].start].strip() or "|" not in self._text
        if is_known and self._columns and rows and len(rows[0][1]) == len(self._columns):
            header = self._columns
            rows = rows[rows[0][1] == header :]
        else:
            header = rows[0][1] if len(rows) > 1 and self._has_header(lines) else []
            rows = rows[bool(header) :]
        for line, cells in rows:
            names = header if len(header) == len(cells) else [""] * len(cells)
            named = [
                f"{name}: {cell}" if name and at else cell or name
                for at, (name, cell) in enumerate(zip(names, cells, strict=True))
                if cell
            ]
            if named:
                yield self._statement(
                    line.start, line.end, "; ".join(named), depends=bool(self._lead)
                )

    def _item(self, start: int, end: int) -> Iterator[Statement]:
        line = self._text[start:end]
        indent = len(line) - len(line.lstrip())
        if indent <= self._parent_indent:
            self._parent = ""
        mark = _ITEM.match(self._text, start, end)
        begin = mark.end() if mark else start
        if mark and "]" in mark[0]:  # whether it is done is part of what it says
            begin = mark.start() + mark[0].index("[")
        spans = list(sentence_spans(self._text, begin, end))
        if spans and spans[-1][1] - spans[0][0] <= _LONGEST:
            spans = [(spans[0][0], spans[-1][1])]
        yield from self._of_spans(spans, is_item=True)
        words = _plain(self._text[begin:end])
        if words.endswith(":"):
            self._parent, self._parent_indent = words.strip("*_ :"), indent

    def _of_spans(self, spans: list[tuple[int, int]], *, is_item: bool) -> Iterator[Statement]:
        before: tuple[int, str] | None = None
        waiting: Statement | None = None  # the last one, which the next sentence may turn
        for start, end in spans:
            words = _plain(self._text[start:end])
            bare = words.rstrip("*_ ")
            is_said = not bare.endswith((":", "?"))
            if waiting is not None:
                if is_said and not waiting.turned and (_answers(words) or is_denied(waiting)):
                    waiting, before = waiting.turned_by(words, end), None
                    continue
                yield waiting
                waiting = None
            if is_said:
                if _is_statement(words):
                    begin, whole = start, words
                    if before is not None and _PRONOUN.match(words):
                        begin, whole = before[0], f"{before[1]} {words}"
                    waiting = self._statement(begin, end, whole, depends=is_item)
                self._question = ""
                before = start, words
                continue
            if bare.endswith("?"):
                self._question = bare.strip("*_ ")
            elif not is_item:
                self._lead = bare.strip("*_ :")
            before = None
        if waiting is not None:
            yield waiting

    def _statement(self, start: int, end: int, words: str, *, depends: bool = False) -> Statement:
        leads = (self._lead, self._parent) if depends else (self._over,)
        titles = (title for _, title in self._headings)
        context = tuple(filter(None, (*titles, *leads, self._question)))
        return Statement(start, end, words, context, depends and bool(context))


def _title(lines: str) -> str:
    """Return the title that a heading's lines give, without its marks."""
    line = lines.splitlines()[0]
    match = _HEADING.match(line)
    if match is not None:
        line = match[2]
    elif (match := _BOLD.match(line)) is not None:
        line = match[1]
    return " ".join(line.strip(f" #{_FRAME}").split())


def _answers(words: str) -> bool:
    """Return whether a sentence turns the meaning of what is before it: *This is wrong.*"""
    said = words[_LABELS.match(words).end() :]  # type: ignore[union-attr]
    return any(_ANSWERS.match(one) and _TURNS.search(one[:_NEAR]) for one in (words, said))


def question_of(statement: Statement) -> str:
    """Return the question that a statement answers, "" if none stands before it."""
    return next((one for one in statement.context[-1:] if one.endswith("?")), "")


def is_denied(statement: Statement) -> bool:
    """Return whether a label denies a statement, so that the next one says what is true: *Myth:*"""
    labels = _LABELS.match(statement.text)[0]  # type: ignore[index]
    return any(denies(one, most=3) for one in labels.split(":"))


def _find_delimiter(lines: Sequence[str], columns: int) -> str | None:
    """Return what separates the cells of a passage that is CSV as a whole, else ``None``.

    ``columns`` is the number of columns, 0 if it is not known.
    """
    lines = [line.strip() for line in lines if line.strip()]
    if len(lines) < 2 - bool(columns) or any(" | " in line for line in lines):
        return None
    for delimiter in ",;\t":
        rows = [next(csv.reader([line], delimiter=delimiter), []) for line in lines]
        [(width, alike)] = Counter(map(len, rows)).most_common(1)
        spaced = sum(cell.startswith(" ") for row in rows for cell in row)  # as in prose
        is_table = width == columns if columns else spaced < len(rows)
        if is_table and 1 < width <= _MOST_COLUMNS and alike >= _ALIKE * len(rows):
            return delimiter
    return None


def _plain(text: str) -> str:
    """Return the text on one line, without the marks of bold words."""
    return " ".join(_STRONG.sub(r"\1", text).split())


def _is_statement(words: str) -> bool:
    """Return whether a sentence says something.

    Links alone, a notice of rights and the subject of a mail do not.
    """
    if _RIGHTS.search(words) or words.startswith("Subject: "):
        return False
    bare = _LINK.sub("", words)
    return bool(_WORDS.search(bare)) and (bare == words or len(_WORDS.findall(bare)) > 1)
