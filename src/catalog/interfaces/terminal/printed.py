"""How an answer is wanted, and what is printed then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog.interfaces.terminal.plain import json_text

if TYPE_CHECKING:
    from catalog.interfaces.operations.base import CallResult


@dataclass(frozen=True, slots=True)
class Form:
    """``bold``: the terminal can show matches so; ``explain``: tell how; ``numbers``: of lines."""

    json: bool = False
    bold: bool = False
    explain: bool = False
    numbers: bool = False


@dataclass(frozen=True, slots=True)
class TerminalText:
    """Text for standard output and standard error, and the exit code."""

    out: str
    err: str = ""
    code: int = 0

    @classmethod
    def of(cls, out: Iterable[str], err: Iterable[str] = ()) -> TerminalText:
        """The lines, each ended."""
        return cls("".join(f"{line}\n" for line in out), "".join(f"{line}\n" for line in err))


def render(operation: str, answer: CallResult, form: Form) -> TerminalText:
    """What a command prints for the operation's answer."""
    if form.json:
        return TerminalText.of([json_text(answer.to_dict())])
    return _text(operation, answer, form)


def _text(operation: str, answer: Any, form: Form) -> TerminalText:
    """Imported when needed: asking a server needs none of it."""
    from catalog.interfaces.terminal.catalog import catalog_text
    from catalog.interfaces.terminal.documents import document_text, documents_text
    from catalog.interfaces.terminal.passages import passages_text
    from catalog.interfaces.terminal.status import status_text

    match operation:
        case "search":
            explain, bold = form.explain, form.bold
            return passages_text(answer.results, explain=explain, bold=bold, notes=answer.notes)
        case "get":
            return document_text(answer, numbers=form.numbers)
        case "multi_get":
            return documents_text(answer, numbers=form.numbers)
        case "browse":
            return catalog_text(answer)
        case "status":
            return status_text(answer.status)
    raise ValueError(f"no text for {operation!r}")
