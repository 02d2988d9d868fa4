"""Text of documents and messages, safe to print and laid out in the columns of a terminal."""

from __future__ import annotations

import json
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from rich.text import Text

LEAST_COLUMNS = 20

_KEPT = frozenset("\n\t\u200c\u200d")  # also the joiners of emoji, and of scripts that need them
_STEERING = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_JOINT = "\ue000"  # stands for a blank at which no line is broken
_COMMAND = re.compile(  # quoted, or up to the end of a clause
    r"'(?:catalog|pip) [^'\n]*'"
    r"|(?<!\S)(?:catalog|pip)(?: (?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\",;()]+))+"
)
_LABEL = re.compile(r"(?<=\S)  +")  # blanks after the name of a value
_TAB = 4  # columns
_BOLD, _PLAIN = "\x1b[1m", "\x1b[22m"


def safe(text: str) -> str:
    """Return the text with characters that could steer a terminal as U+FFFD."""
    return "".join(
        char if char in _KEPT or unicodedata.category(char) not in ("Cc", "Cf", "Cs") else "�"
        for char in text.replace("\r\n", "\n")
    )


def one_line(text: str) -> str:
    """Return the text with one blank for each run of white space, so that it cannot fake a line."""
    return " ".join(text.split())


def complaint(message: str) -> str:
    """Return a message for printing; indent further lines so that none looks like another."""
    first, *others = [safe(line.strip()) for line in message.splitlines() if line.strip()] or [""]
    return "\n  ".join([f"catalog: {first}", *others])


def json_text(value: Any) -> str:
    """Return one JSON document on a line; lone surrogates, which UTF-8 lacks, become ``?``.

    Characters that steer a terminal or turn the direction of text are escaped.
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode("utf-8", "replace").decode("utf-8")


def shorten(text: str, width: int) -> str:
    """Return the text, cut to ``width`` columns with an ellipsis if it is longer."""
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def wrap(
    text: str, width: int | None, indent: str = "", *, bold: Sequence[tuple[int, int]] = ()
) -> list[str]:
    """Return one line of text as lines of at most ``width`` columns, all but the first indented.

    The ranges ``bold`` of the text are bold. Without a width it is one line.
    """
    if width is None:
        return [_styled(_with_bold(text, bold)) if bold else text]
    lead = text[: len(text) - len(text.lstrip())]
    if not text.strip():
        return [""]
    line = _with_bold(text, bold)[len(lead) :]
    room = max(LEAST_COLUMNS, width - max(map(cell_len, (lead, indent))))
    lines = line.wrap(None, room, overflow="fold")  # type: ignore[arg-type]  # it justifies
    for one in lines:
        one.rstrip()
    first, *others = map(_styled, lines)
    return [lead + first, *(indent + other for other in others)]


def crop(text: str, width: int, bold: Sequence[tuple[int, int]], first: int = 0) -> str:
    """Return a line of code or of a table, cut to ``width`` columns so that it shows ``first``."""
    line, head = _with_bold(text, bold), ""
    if cell_len(text.expandtabs(_TAB)) > width:
        if cell_len(text[:first].expandtabs(_TAB)) >= width - 1:
            begin = max(0, first - width // 3)
            line, head = line[begin:], "…" * (begin > 0)
        line.expand_tabs(_TAB)
        if line.cell_len > width - len(head):
            line.truncate(width - len(head) - 1)
            line.rstrip()
            line.append("…")
    line.expand_tabs(_TAB)
    return head + _styled(line)


def _with_bold(text: str, ranges: Sequence[tuple[int, int]]) -> Text:
    from rich.text import Text

    line = Text(text, tab_size=_TAB)
    for start, end in ranges:
        line.stylize("bold", max(0, start), end)
    return line


def _styled(line: Text) -> str:
    text, pieces, at = line.plain, list[str](), 0
    for start, end, _ in sorted(line.spans):
        if at <= start < min(end, len(text)):
            pieces += [text[at:start], _BOLD, text[start:end], _PLAIN]
            at = min(end, len(text))
    return "".join([*pieces, text[at:]])


def fit(text: str, width: int | None, indent: str = "    ") -> str:
    """Return a message with lines of at most ``width`` columns; unchanged without a width.

    Further lines are indented more than the first. Paths, links and commands to copy stay whole.
    """
    if width is None:
        return text
    lines = []
    for line in text.split("\n"):
        whole = _COMMAND.sub(lambda found: found[0].replace(" ", _JOINT), line)
        whole = _LABEL.sub(lambda found: found[0].replace(" ", _JOINT), whole, count=1)
        lead = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            whole,
            max(LEAST_COLUMNS, width),
            subsequent_indent=lead + indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines).replace(_JOINT, " ")
