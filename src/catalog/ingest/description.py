"""What a document is, from its author's words and from the files beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from catalog.core.dates import read_written_date
from catalog.core.documents import MetadataValue, ParsedDocument
from catalog.core.filters import known_file_type
from catalog.ingest.readers.base import one_line
from catalog.ingest.readers.metadata import DATE_KEYS, take_title
from catalog.ingest.readers.registry import EXTENSIONS

TOLD_BY_CONTENT = ("media", "media_file")
_REFUSED = "{} is told by names and content alone"
_MAX_WORD = 100  # characters of a source type
_DATES = frozenset(key for keys in DATE_KEYS.values() for key in keys)


def drop_claims(parsed: ParsedDocument) -> ParsedDocument:
    """Return the document without what its author says in the fields that tell what it is made of.

    Its remarks name what was dropped.
    """
    claims = [
        name for name in TOLD_BY_CONTENT if name in parsed.written and name in parsed.metadata
    ]
    if not claims:
        return parsed
    return replace(
        parsed,
        metadata={name: value for name, value in parsed.metadata.items() if name not in claims},
        written=parsed.written.difference(claims),
        remarks=(*parsed.remarks, *map(_REFUSED.format, claims)),
    )


def describe(
    parsed: ParsedDocument, beside: Sequence[Mapping[str, MetadataValue]]
) -> tuple[ParsedDocument, tuple[str, ...]]:
    """Return the document with all that is said of it, and remarks on what could not be taken.

    Of each field the author's words in the document count, then ``beside`` in its order, then
    what a program wrote into the file.
    """
    own = {name: value for name, value in parsed.metadata.items() if name in parsed.written}
    if not own and not beside and not parsed.remarks:
        return parsed, ()
    remarks = list(parsed.remarks)
    stated: dict[str, MetadataValue] = {}
    for fields in reversed(beside):
        others = {name: value for name, value in fields.items() if name not in TOLD_BY_CONTENT}
        remarks += [_REFUSED.format(name) for name in TOLD_BY_CONTENT if name in fields]
        stated |= _accepted(others, remarks)
    title = take_title(stated)
    accepted = _accepted(own, remarks)
    known = {name: value for name, value in parsed.metadata.items() if name not in own}
    metadata = {**known, **stated, **accepted}
    said = {**stated, **accepted}
    described = replace(
        parsed,
        metadata=metadata,
        title=parsed.title if "title" in parsed.written else one_line(title or parsed.title),
        file_type=str(said.get("file_type", parsed.file_type)),
        source_type=str(said.get("source_type", parsed.source_type)),
        written=parsed.written | said.keys(),
        remarks=(),
    )
    return described, tuple(remarks)


def _accepted(fields: Mapping[str, MetadataValue], remarks: list[str]) -> dict[str, MetadataValue]:
    """Return the fields without those that have no such meaning; add remarks on these."""
    accepted = dict(fields)
    for name, value in fields.items():
        if name in _DATES and read_written_date(value) is None:
            remarks.append(
                f"{name} {_shown(value)} is no date, or could be two: write it as 2024-05-31"
            )
            if name in DATE_KEYS:
                del accepted[name]
        elif name == "file_type":
            kind = known_file_type(value, EXTENSIONS) if isinstance(value, str) else None
            if kind is None:
                remarks.append(f"file_type {_shown(value)} is no type that is known, such as pdf")
                del accepted[name]
            else:
                accepted[name] = kind
        elif name == "source_type" and (isinstance(value, tuple) or len(str(value)) > _MAX_WORD):
            remarks.append(f"source_type {_shown(value)} must be one short text, such as memo")
            del accepted[name]
    return accepted


def _shown(value: MetadataValue) -> str:
    text = one_line(", ".join(map(str, value)) if isinstance(value, tuple) else value)
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
