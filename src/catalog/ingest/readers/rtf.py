"""Rich text: its paragraphs and tables, without formatting, pictures and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import BinaryIO

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import PlacesBuilder
from catalog.ingest.readers.base import JoinedText, ReadFailure, ReadLimits, read_bytes
from catalog.ingest.readers.metadata import LEVEL, UNREADABLE, normalise
from catalog.ingest.readers.tables import make_table, names_columns

_TITLE = re.compile(r"\{\\title ([^{}\\]{1,300})\}")
_PROPERTY = re.compile(r"\\propname(?![a-z])(.{1,400}?)(?=\\prop|\\static|\Z)", re.DOTALL)
_ESCAPED = re.compile(r"\\'([0-9a-fA-F]{2})|\\u(-?\d{1,6})(?:\\'..|\?)?")
_MARKUP = re.compile(r"[{}\r\n]|\\[a-z]{1,32}-?\d{0,9} ?|\\.")


class RtfReader:
    """Read each paragraph, and each row of a table, as one paragraph of the text."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the one document of the file.

        Raises ``ReadError`` if it is too large, broken or without text.
        """
        from striprtf.striprtf import rtf_to_text

        source = read_bytes(handle, limits.text_bytes).decode("cp1252", "replace")
        names = map(_plain, _PROPERTY.findall(source))
        fields = {name: UNREADABLE for name in names if LEVEL in name.casefold()}
        try:
            text = str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise ReadError("broken rich text") from error
        if not text.strip():
            raise EmptyDocumentError("empty: no text")
        joined, number = JoinedText(limits, "paragraph"), 0
        lines = filter(str.strip, text.split("\n"))
        for is_table, block in groupby(lines, lambda line: "|" in line and line.endswith("|")):
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block]
            parts = [" | ".join(row) for row in rows]
            for group in ["\n".join(parts)] if is_table else parts:
                places, at = PlacesBuilder("paragraph"), 0
                for line in group.split("\n"):
                    number += 1
                    places.add(at, number)
                    at += len(line) + 1
                whole = (0, len(group))
                named = is_table and names_columns(rows)
                joined.add(
                    group,
                    atomic=[whole] if is_table else [],
                    places=places.places(),
                    tables=make_table(*whole, rows[:1]) if named else [],
                )
        title = _TITLE.search(source)
        metadata = normalise(fields)
        yield joined.document(path, title=title and title[1], file_type="rtf", metadata=metadata)


def _plain(source: str) -> str:
    """Return the text of a piece of rich text, without escapes, groups and control words."""

    def letter(match: re.Match[str]) -> str:
        if match[1]:
            return bytes.fromhex(match[1]).decode("cp1252", "replace")
        return chr(int(match[2]) % 0x10000)

    return _MARKUP.sub("", _ESCAPED.sub(letter, source)).strip()
