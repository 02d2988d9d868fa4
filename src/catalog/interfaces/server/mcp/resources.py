"""The documents as resources: listed page by page, read as text."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import mcp_types as types
from mcp.shared.exceptions import MCPError

from catalog.core.errors import DocumentNotFoundError, NoStoreError, UnknownDatasetError
from catalog.core.params import MAX_OFFSET
from catalog.core.text import storable
from catalog.interfaces.agents.quoting import clean
from catalog.interfaces.plain_text import one_line, safe
from catalog.library.document_parts import URI_SCHEME, unquote_uri

if TYPE_CHECKING:
    from catalog.interfaces.calls import Engine


PAGE_SIZE = 100
MAX_BYTES = 1_000_000
_MARKDOWN = frozenset((".md", ".markdown"))
_MAX_TITLE, _MAX_SUMMARY = 200, 500
TEMPLATE = types.ResourceTemplate(
    name="document",
    title="Document",
    uri_template=URI_SCHEME + "{dataset}/{+path}",
    description="The text of a document as it was indexed; at most 1 MB of it.",
)


def document_uri(dataset: str, path: str) -> str:
    """Return the URI of a document; :func:`parse_document_uri` reads it back."""
    return URI_SCHEME + _quote(dataset, "") + "/" + _quote(path, "/")


def parse_document_uri(uri: str) -> tuple[str, str]:
    """Return dataset and path of a resource; raise the protocol's error for anything else."""
    dataset, _, path = uri.removeprefix(URI_SCHEME).partition("/")
    if not uri.startswith(URI_SCHEME) or not dataset or not path:
        raise _unknown_resource(uri)
    try:
        return unquote_uri(dataset), unquote_uri(path)
    except UnicodeError as error:
        raise _unknown_resource(uri) from error


@dataclass(frozen=True, slots=True)
class DocumentResources:
    """The documents of an engine; asking it blocks."""

    engine: Engine

    def page(self, cursor: str | None) -> types.ListResourcesResult:
        """Return up to 100 documents after the cursor, by dataset and name."""
        try:
            names = [item["dataset"] for item in self.engine.ask("status", {})["datasets"]]
        except NoStoreError:
            names = []
        if not names and cursor is None:
            return types.ListResourcesResult(resources=[])
        dataset, offset = (names[0], 0) if cursor is None else _read_cursor(cursor)
        if dataset not in names:
            raise _bad_cursor()
        remaining = names[names.index(dataset) :]
        resources, cursor = self._list(remaining, offset)
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    def _list(self, names: list[str], offset: int) -> tuple[list[types.Resource], str | None]:
        resources: list[types.Resource] = []
        for name in names:
            if len(resources) == PAGE_SIZE:
                return resources, _write_cursor(name, 0)
            params = {
                "dataset": name,
                "sort": "name",
                "limit": PAGE_SIZE - len(resources),
                "offset": offset,
            }
            answer = self.engine.ask("browse", params)
            resources += [_resource(entry) for entry in answer["entries"]]
            end = offset + len(answer["entries"])
            if answer["entries"] and end < min(answer["total"], MAX_OFFSET):
                return resources, _write_cursor(name, end)
            offset = 0
        return resources, None

    def read(self, uri: str) -> types.ReadResourceResult:
        """Return the document's text, cut at 1 MB (UTF-8) with a word on how to get the rest."""
        dataset, path = parse_document_uri(uri)
        try:
            params = {"reference": f"{dataset}:{path}", "dataset": dataset, "max_bytes": MAX_BYTES}
            answer = self.engine.ask("get", params)
        except (DocumentNotFoundError, UnknownDatasetError) as error:
            raise _unknown_resource(uri) from error
        if path.startswith(f"{answer['path']}:"):  # its end was read as a range of lines
            raise _unknown_resource(uri)
        text = "\n\n".join([answer["text"], *_pointer(answer, f"{dataset}:{path}")])
        content = types.TextResourceContents(
            uri=uri, text=storable(text), mime_type=_mime_type(path)
        )
        return types.ReadResourceResult(contents=[content])


def _pointer(answer: Mapping[str, Any], reference: str) -> Iterator[str]:
    if answer["notes"]:
        yield (
            f"[Here ends what a resource gives: {'; '.join(answer['notes'])}. "
            f"For the rest call the tool get with reference {json.dumps(reference)}.]"
        )


def _resource(entry: Mapping[str, Any]) -> types.Resource:
    return types.Resource(
        uri=document_uri(entry["dataset"], entry["path"]),
        name=_clean(entry["path"], len(entry["path"])),
        title=_clean(entry["title"], _MAX_TITLE) or None,
        description=_clean(entry["summary"], _MAX_SUMMARY) or None,
        mime_type=_mime_type(entry["path"]),
    )


def _clean(text: str | None, limit: int) -> str:
    """Return text out of a document as one line without control and hidden characters."""
    line = clean(one_line(safe(text or "")))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _mime_type(path: str) -> str:
    kind = PurePosixPath(path).suffix.casefold()
    return "text/markdown" if kind in _MARKDOWN else "text/plain"


def _quote(text: str, safe_characters: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe=safe_characters)


def _write_cursor(dataset: str, offset: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([dataset, offset]).encode()).decode()


def _read_cursor(cursor: str) -> tuple[str, int]:
    try:
        content = json.loads(base64.b64decode(cursor.encode("ascii"), b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise _bad_cursor() from error
    match content:
        case [str() as dataset, int() as offset] if 0 <= offset <= MAX_OFFSET:
            return dataset, int(offset)
    raise _bad_cursor()


def _bad_cursor() -> MCPError:
    return MCPError(types.INVALID_PARAMS, "this cursor is not one that was given out: begin anew")


def _unknown_resource(uri: str) -> MCPError:
    """Return the error for no such resource, of the protocol's revision 2026-07-28 (SEP-2164)."""
    short = _clean(uri, 200)
    message = f"there is no resource {short}; a document's is {TEMPLATE.uri_template}"
    return MCPError(types.INVALID_PARAMS, message, {"uri": storable(uri[:1000])})
