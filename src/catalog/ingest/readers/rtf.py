"""Rich text: its paragraphs, tables and notes, without formatting, pictures and headings."""

import re
from html import escape
from typing import BinaryIO

from striprtf.striprtf import rtf_to_text

from catalog.core.errors import ReadError
from catalog.ingest.readers.base import Items, JoinedText, ReadLimits, read_bytes
from catalog.ingest.readers.formulas import CLOSED, LOWERED, RAISED, write_scripts
from catalog.ingest.readers.html import extract
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE, normalise

_TITLE = re.compile(r"\{\\title ([^{}\\]{1,300})\}")
_PROPERTY = re.compile(r"\\propname(?![a-z])(.{1,400}?)(?=\\prop|\\static|\Z)", re.DOTALL)
_TOKEN = re.compile(r"\\([a-z]{1,32})(-?\d{1,9})? ?|\\'..|\\.|([{}])|[^\\{}]++", re.DOTALL)
_LETTERS = re.compile(r"\\u-?\d|\\'|[^\\{}]")
_SCRIPTS = {"super": RAISED, "up": RAISED, "sub": LOWERED, "dn": LOWERED, "nosupersub": ""}
_APART = {
    "annotation",
    "shptxt",
    *(f"{at}er{on}" for at in ("head", "foot") for on in ("", *"lrf")),
}
_STRAY = re.compile(f"([{RAISED}{LOWERED}][^{RAISED}-{CLOSED}]*+{CLOSED})|{CLOSED}")
# The library looks for addresses in fields. One font a line, or it takes quadratic time.
_WRITTEN = {"field": "", "f": "\n{}", "fcharset": "{} x;\n"}


class RtfReader:
    """Read each paragraph, each row of a table and each note as one paragraph of the text."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the one document; raise ``ReadError`` if it is too large, broken or empty."""
        source = read_bytes(handle, limits.text_bytes).decode("cp1252", "replace")
        named = _PROPERTY.findall(re.sub("[{}]", "", source))
        marked = "".join(f"{{{name}\\par}}" for name in named) + CLOSED + _mark(source)
        try:
            names, _, text = rtf_to_text(f"{{{marked}}}", errors="replace").partition(CLOSED)  # type: ignore[no-untyped-call]
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise ReadError("broken rich text") from error
        page = ["<table>"]
        for line in filter(str.strip, escape(write_scripts(_STRAY.sub(r"\1", text))).split("\n")):
            cells = line.removesuffix("|").replace("|", "<td>")
            page.append(f"<tr><td>{cells}" if line.endswith("|") else f"</table><p>{line}<table>")
        read, joined = extract("".join(page)), JoinedText(limits, "paragraph")
        joined.add(read.text, atomic=read.atomic, places=read.places, tables=read.tables)
        fields = {name: UNREADABLE for name in names.split("\n") if LEVEL in name.casefold()}
        metadata = normalise({"title": "".join(_TITLE.findall(source)[:1]), **fields})
        yield joined.document(path, file_type="rtf", metadata=metadata)


def _mark(source: str) -> str:
    """Return rich text with raised text marked, without hidden text; notes and more at its end."""
    body, notes, apart = list[str](), list[list[str]](), list[list[str]]()
    groups = list[tuple[list[str], bool]]()
    out, is_hidden = body, False
    for token in _TOKEN.finditer(source):
        word, number, brace = token.groups()
        inner, piece = out, _WRITTEN.get(word, "{}").replace("{}", token[0])
        if brace == "{":
            groups.append((out, is_hidden))
        elif brace:
            piece, (out, is_hidden) = CLOSED + brace, groups.pop() if groups else (body, False)
        elif word in (*_SCRIPTS, "plain"):
            piece = CLOSED + _SCRIPTS.get(word, "") * (number != "0")
        elif word in ("v", "fldinst"):  # hidden text, the address of a link
            is_hidden = number != "0"
        elif word == "footnote":
            notes.append([f"\\par [{len(notes) + 1}] {{"])
            out, piece = notes[-1], "}"
        elif word in _APART:
            apart.append(["\\par {"])
            out, piece = apart[-1], "}"
        elif word == "chftn":
            piece = f"[{len(notes) + 1}]" if out is body else ""
        if brace or not (is_hidden and _LETTERS.match(piece)):
            inner.append(piece)
    ends = "".join(dict.fromkeys(map("".join, notes + apart)))
    return f"{''.join(body).rstrip().removesuffix('}')}{ends}}}"
