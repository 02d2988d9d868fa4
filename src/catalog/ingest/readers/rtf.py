"""Rich text: its paragraphs, tables and notes, without formatting, pictures and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import BinaryIO

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.ingest.readers.base import JoinedText, ReadFailure, ReadLimits, read_bytes
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, write_scripts
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE, normalise

_TITLE = re.compile(r"\{\\title ([^{}\\]{1,300})\}")
_PROPERTY = re.compile(r"\\propname(?![a-z])(.{1,400}?)(?=\\prop|\\static|\Z)", re.DOTALL)
_TOKEN = re.compile(r"\\([a-z]{1,32})(-?\d{1,9})? ?|\\'..|\\.|([{}])|[^\\{}]++", re.DOTALL)
_LETTERS = re.compile(r"\\u-?\d|\\'|[^\\{}]")
_SCRIPTS = {"super": RAISED, "up": RAISED, "sub": LOWERED, "dn": LOWERED}


class RtfReader:
    """Read each paragraph, each row of a table and each note as one paragraph of the text."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document; raise ``ReadError`` if it is too large, broken or empty."""
        source = read_bytes(handle, limits.text_bytes).decode("cp1252", "replace")
        text = _read(_mark(source))
        if not text.strip():
            raise EmptyDocumentError("empty: no text")
        page, joined = [], JoinedText(limits, "paragraph")
        lines = filter(str.strip, escape(write_scripts(text)).split("\n"))
        for is_row, block in groupby(lines, lambda line: "|" in line and line.endswith("|")):
            if is_row:
                rows = [line.strip("|").replace("|", "<td>") for line in block]
                page.append(f"<table><tr><td>{'<tr><td>'.join(rows)}</table>")
            else:
                page.append(f"<p>{'<p>'.join(block)}</p>")
        read = extract("".join(page))
        joined.add(read.text, atomic=read.atomic, places=read.places, tables=read.tables)
        title = _TITLE.search(source)
        properties = re.sub("[{}]", "", "\\par ".join(_PROPERTY.findall(source)))
        names = _read(f"{{\\rtf1 {properties}}}").split("\n")
        metadata = normalise({name: UNREADABLE for name in names if LEVEL in name.casefold()})
        yield joined.document(path, title=title and title[1], file_type="rtf", metadata=metadata)


def _read(source: str) -> str:
    from striprtf.striprtf import rtf_to_text

    try:
        return str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise ReadError("broken rich text") from error


def _mark(source: str) -> str:
    """Return rich text with raised text marked, without hidden text, and notes at its end."""
    body, notes, groups = list[str](), list[list[str]](), list[tuple[list[str], str, bool]]()
    out, script, is_hidden = body, "", False
    for token in _TOKEN.finditer(source):
        word, number, brace = token.groups()
        before, piece = script, token[0]
        if brace == "{":
            groups.append((out, script, is_hidden))
        elif word in _SCRIPTS and number != "0":
            script = _SCRIPTS[word]
            piece = script
        elif word in (*_SCRIPTS, "nosupersub", "plain"):
            script, is_hidden = "", is_hidden and word != "plain"
        elif word in ("v", "fldinst"):  # hidden text, the address of a link
            is_hidden = number != "0"
        elif word == "footnote":
            notes.append([f"\\par [{len(notes) + 1}] {{"])
            out, piece = notes[-1], ""
        elif word == "field":  # which the library would search for an address
            piece = ""
        elif word in ("f", "fcharset"):  # one font a line, or it takes quadratic time
            piece = f"\n{piece}" if word == "f" else f"{piece} x;\n"
        elif word == "chftn":
            piece = f"[{len(notes) + 1}]" if out is body else ""
        if before and script != before:
            out.append(CLOSED)
        if not (is_hidden and _LETTERS.match(piece)):
            out.append(piece)
        if brace == "}" and groups:
            inner, (out, outer, is_hidden) = out, groups.pop()
            inner[-1:] = [CLOSED if script != outer else "", "}"]
            out += "}" if out is not inner else ""
            script = outer
    text = "".join(body).rstrip()
    return text.removesuffix("}") + "".join(map("".join, notes)) + "}"
