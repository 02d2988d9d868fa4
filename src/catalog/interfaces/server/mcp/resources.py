"""The documents as resources: listed page by page, read as text."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes

import mcp_types as types
from mcp.shared.exceptions import MCPError

from catalog.core.errors import DocumentNotFoundError, UnknownDatasetError
from catalog.core.text import storable
from catalog.interfaces.plain_text import one_line, safe

if TYPE_CHECKING:
    from catalog.interfaces.engine import Engine


SCHEME = "catalog://"
PAGE = 100
MAX_BYTES = 1_000_000
_MAX_OFFSET = 10_000_000  # that of the operation
_MARKDOWN = frozenset((".md", ".markdown"))
_MAX_TITLE, _MAX_SUMMARY = 200, 500
TEMPLATE = types.ResourceTemplate(
    name="document",
    title="Document",
    uri_template=SCHEME + "{dataset}/{+path}",
    description="The text of a document as it was indexed; at most 1 MB of it.",
)


def document_uri(dataset: str, path: str) -> str:
    """Return the URI of a document; :func:`parse_document_uri` reads it back."""
    return SCHEME + _quoted(dataset, "") + "/" + _quoted(path, "/")


def parse_document_uri(uri: str) -> tuple[str, str]:
    """Dataset and path of a resource; raises the protocol's error for anything else."""
    dataset, _, path = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not dataset or not path:
        raise _unknown(uri)
    try:
        return _unquoted(dataset), _unquoted(path)
    except UnicodeDecodeError as error:
        raise _unknown(uri) from error


@dataclass(frozen=True, slots=True)
class DocumentResources:
    """Asks an engine for the documents it has; blocks."""

    engine: Engine

    def page(self, cursor: str | None) -> types.ListResourcesResult:
        """Up to 100 documents after the cursor, by dataset and name."""
        names = [one["dataset"] for one in self.engine.ask("status", {})["datasets"]]
        if not names and cursor is None:
            return types.ListResourcesResult(resources=[])
        dataset, offset = (names[0], 0) if cursor is None else _read_cursor(cursor)
        if dataset not in names:
            raise _bad_cursor()
        left = names[names.index(dataset) :]
        found, following = self._listed(left, offset)
        return types.ListResourcesResult(resources=found, next_cursor=following)

    def _listed(self, names: list[str], offset: int) -> tuple[list[types.Resource], str | None]:
        found: list[types.Resource] = []
        for name in names:
            if len(found) == PAGE:
                return found, _cursor(name, 0)
            asked = {"dataset": name, "sort": "name", "limit": PAGE - len(found), "offset": offset}
            answer = self.engine.ask("browse", asked)
            found += [_resource(entry) for entry in answer["entries"]]
            end = offset + len(answer["entries"])
            if answer["entries"] and end < min(answer["total"], _MAX_OFFSET):
                return found, _cursor(name, end)
            offset = 0
        return found, None

    def read(self, uri: str) -> types.ReadResourceResult:
        """The document's text, cut at 1 MB (UTF-8) with a word on how to get the rest."""
        dataset, path = parse_document_uri(uri)
        try:
            asked = {"reference": f"{dataset}:{path}", "dataset": dataset, "max_bytes": MAX_BYTES}
            found = self.engine.ask("get", asked)
        except (DocumentNotFoundError, UnknownDatasetError) as error:
            raise _unknown(uri) from error
        if found["path"] != path:  # its end was read as a range of lines
            raise _unknown(uri)
        text = "\n\n".join([found["text"], *_pointer(found, f"{dataset}:{path}")])
        content = types.TextResourceContents(uri=uri, text=storable(text), mime_type=_mime(path))
        return types.ReadResourceResult(contents=[content])


def _pointer(found: Mapping[str, Any], reference: str) -> Iterator[str]:
    if found["notes"]:
        yield (
            f"[Here ends what a resource gives: {'; '.join(found['notes'])}. For the rest call the "
            f"tool get with reference {json.dumps(reference)}.]"
        )


def _resource(entry: Mapping[str, Any]) -> types.Resource:
    return types.Resource(
        uri=document_uri(entry["dataset"], entry["path"]),
        name=_clean(entry["path"], len(entry["path"])),
        title=_clean(entry["title"], _MAX_TITLE) or None,
        description=_clean(entry["summary"], _MAX_SUMMARY) or None,
        mime_type=_mime(entry["path"]),
    )


def _clean(text: str | None, most: int) -> str:
    """The text as one line without control characters, which came out of a document."""
    line = one_line(safe(text or ""))
    return line if len(line) <= most else line[: most - 1] + "…"


def _mime(path: str) -> str:
    kind = PurePosixPath(path).suffix.casefold()
    return "text/markdown" if kind in _MARKDOWN else "text/plain"


def _quoted(text: str, kept: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe=kept)


def _unquoted(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "surrogatepass")


def _cursor(dataset: str, offset: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([dataset, offset]).encode()).decode()


def _read_cursor(cursor: str) -> tuple[str, int]:
    try:
        read = json.loads(base64.b64decode(cursor.encode("ascii"), b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise _bad_cursor() from error
    match read:
        case [str() as dataset, int() as offset] if 0 <= offset <= _MAX_OFFSET:
            return dataset, int(offset)
    raise _bad_cursor()


def _bad_cursor() -> MCPError:
    return MCPError(types.INVALID_PARAMS, "this cursor is not one that was given out: begin anew")


def _unknown(uri: str) -> MCPError:
    """No such resource; the code is that of the protocol's 2026-07-28 revision (SEP-2164)."""
    shown = _clean(uri, 200)
    message = f"there is no resource {shown}; a document's is {TEMPLATE.uri_template}"
    return MCPError(types.INVALID_PARAMS, message, {"uri": storable(uri[:1000])})
