"""Read many mails in one file (mbox).

archive.mbox › 2024-05-31 Drawings                  a mail, named by its date and subject
archive.mbox › 2024-05-31 Drawings › contract.pdf   its attachment
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.ids import sha1_hex
from catalog.core.places import WITHIN
from catalog.ingest.readers.base import ReadFailure, ReadLimits, cap_failures
from catalog.ingest.readers.mail.message import name_of, number_name, read_message

_FROM_LINE = re.compile(rb"From (?:[^\n]*?\d:\d\d[^\n]*+|-?\s*+)\r?\n?")
_FIELD = re.compile(rb"[!-9;-~]++:|>From ")
_ESCAPED = re.compile(rb"^>(>*From )", re.MULTILINE)
_LONGEST_LINE = 1 << 20


class MboxReader:
    """Read the mails of an mbox file one by one.

    A reply is in the thread of the mail that it answers if that is above it in the file. A mail
    that is there twice is read once.
    """

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the documents of all mails; a mail that cannot be read is a ``ReadFailure``."""
        names: Counter[str] = Counter()
        threads: dict[str, str] = {}  # by the id of a mail
        contents: set[str] = set()
        failures: list[ReadFailure] = []
        for line, data in _split(handle, limits.document_bytes):
            items: list[ParsedDocument | ReadFailure] = []
            reason = f"too large: over {limits.document_bytes:,} bytes" if data is None else ""
            try:
                source = _ESCAPED.sub(rb"\1", data or b"")
                items = [] if reason else list(read_message(source, path, limits=limits))
            except ReadError as error:
                reason = str(error)
            documents = [item for item in items if isinstance(item, ParsedDocument)]
            told = "\0".join(str(it.metadata) + it.text for it in documents)
            if not reason and (identity := sha1_hex(told)) in contents:
                reason = "the same mail is above it in the file"
            if reason:
                failures.append(ReadFailure(f"{path}:{line}", reason))
                continue
            contents.add(identity)
            mail = documents[0]
            titled = mail.path == path and "title" in mail.written
            day = str(mail.metadata.get("created", ""))[:10]
            name = " ".join(filter(None, (day, name_of(mail.title if titled else "")))) or "mail"
            within = f"{path}{WITHIN}{number_name(names, name)}"
            stated = str(mail.metadata.get("thread", ""))
            thread = threads.get(stated, stated)
            threads.setdefault(str(mail.metadata.get("message_id", "")), thread)
            for item in items:
                place = within + item.path.removeprefix(path)
                if isinstance(item, ReadFailure):
                    document = item.document and place
                    failures.append(replace(item, path=place, document=document))
                    continue
                is_mail = item.path == path
                is_untitled = item.title == item.path or (is_mail and "title" not in item.written)
                if stated and item.metadata.get("thread") == stated:
                    item = replace(item, metadata={**item.metadata, "thread": thread})
                title, kind = place if is_untitled else item.title, "mbox" * is_mail
                yield replace(item, path=place, title=title, file_type=kind or item.file_type)
        yield from cap_failures(failures)
        if not contents:
            raise EmptyDocumentError("empty: no mail in it")


def _split(handle: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the place of each ``From `` line (with a time, a field below) and its mail or None."""
    pieces: list[bytes] = []
    start = number = size = 0
    is_free, is_line_start = True, True
    line = handle.readline(_LONGEST_LINE)
    while line:
        following = handle.readline(_LONGEST_LINE)
        number += is_line_start
        is_from = is_free and line.startswith(b"From ") and _FROM_LINE.fullmatch(line) is not None
        if is_from and _FIELD.match(following):
            if start:
                yield start, b"".join(pieces) if size <= max_bytes else None
            pieces, start, size = [], number, 0
        elif start:
            size += len(line)
            if size <= max_bytes:
                pieces.append(line)
        is_free = is_line_start and line.endswith(b"\n") and not line.strip()
        is_line_start = line.endswith(b"\n")
        line = following
    if start:
        yield start, b"".join(pieces) if size <= max_bytes else None
