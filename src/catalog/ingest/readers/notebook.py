"""Jupyter notebooks: prose as Markdown, code and its printed results as fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.places import Places, PlacesBuilder
from catalog.core.text import storable
from catalog.ingest.chunking.boundaries import iter_lines
from catalog.ingest.readers.base import JoinedText, ReadFailure, ReadLimits, read_bytes
from catalog.ingest.readers.decoding import count_breaks, decode
from catalog.ingest.readers.markdown import scan_markdown
from catalog.ingest.readers.metadata import (
    normalise,
    read_json,
    stated_levels,
)

_MAX_OUTPUT = 2000
"""Characters of one output that are kept."""
_CURRENT_VERSION = 4
_EMBEDDED = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=]+")
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NO_TEXT = ("image/", "application/vnd.jupyter.widget", "application/javascript")
_BACKTICKS = re.compile(r"`{3,}")
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")


class NotebookReader:
    """Read the cells in order; pictures, HTML and controls in the outputs are left out."""

    def read(
        self, handle: BinaryIO, path: str, *, limits: ReadLimits
    ) -> Iterator[ParsedDocument | ReadFailure]:
        """Yield the document of the file; ``kernel`` is the language of its code.

        Raises ``ReadError`` if it is not a notebook, is over a limit, or has no text.
        """
        cells, metadata = _parse_notebook(decode(read_bytes(handle, limits.document_bytes)))
        language = _language_of(metadata)
        joined = JoinedText(limits, "cell")
        for cell in cells:
            _add_cell(joined, cell, language)
        first = joined.headings[0].title if joined.headings else None
        yield joined.document(
            path,
            title=first or metadata.get("title"),
            file_type="ipynb",
            metadata=normalise(_fields_of(metadata, language)),
        )


def _add_cell(joined: JoinedText, cell: _Cell, language: str) -> None:
    if cell.kind == "code":
        if cell.source.strip():
            block = _fence(cell.source, language)
            joined.add(block, atomic=[(0, len(block))], places=_places(cell, block, fence=1))
        in_no_line = Places("cell", (0,), (cell.number,))
        for block in (_fence(output, "") for output in cell.outputs if output.strip()):
            joined.add(block, atomic=[(0, len(block))], places=in_no_line)
        return
    source = cell.source.strip("\r\n").rstrip()
    headings, atomic, tables = scan_markdown(source) if cell.kind == "markdown" else ((), (), ())
    joined.add(source, headings, atomic, places=_places(cell, source), tables=tables)


def _places(cell: _Cell, block: str, *, fence: int = 0) -> Places:
    """Return the lines of the cell's source in a block with ``fence`` lines around it.

    A fence has the place of the line next to it.
    """
    source, builder = cell.source, PlacesBuilder("cell")
    first = 1 + count_breaks(source[: len(source) - len(source.lstrip("\r\n"))])
    starts = [line.start for line in iter_lines(block)]
    last = first + len(starts) - 1 - 2 * fence
    for number, start in enumerate(starts, start=first - fence):
        builder.add(start, cell.number, min(last, max(first, number)))
    return builder.places()


def _fence(text: str, language: str) -> str:
    """Return a fenced block whose fence is longer than any in the text."""
    longest = max((len(mark) for mark in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    body = text.strip("\r\n").rstrip()
    return f"{fence}{language}\n{body}\n{fence}"


def _language_of(metadata: Mapping[str, object]) -> str:
    for holder, key in (("language_info", "name"), ("kernelspec", "language")):
        values = metadata.get(holder)
        name = values.get(key) if isinstance(values, dict) else None
        if isinstance(name, str) and _LANGUAGE.fullmatch(name):
            return name
    return ""


def _fields_of(metadata: Mapping[str, object], language: str) -> dict[str, object]:
    authors = metadata.get("authors")
    names = [
        author.get("name") if isinstance(author, dict) else author
        for author in (authors if isinstance(authors, list) else [])
    ]
    names = [name for name in names if isinstance(name, str)]
    author = names[0] if len(names) == 1 else names
    return {
        **stated_levels(metadata),
        "kernel": language or None,
        "author": author or None,
        "tags": metadata.get("tags"),
        "date": metadata.get("date"),
    }


@dataclass(frozen=True, slots=True)
class _Cell:
    """One cell: its number from the top, its source, and its text outputs."""

    number: int
    kind: Literal["markdown", "code", "raw"]
    source: str
    outputs: tuple[str, ...] = ()


def _parse_notebook(text: str) -> tuple[list[_Cell], Mapping[str, object]]:
    """Return the cells and the notebook's own metadata; upgrade old versions if possible.

    Raises ``ReadError`` if it is not a notebook, or too deeply nested.
    """
    try:
        notebook = levels = read_json(text)
        if isinstance(notebook, dict) and notebook.get("nbformat", 1) != _CURRENT_VERSION:
            notebook = _upgrade(text) or notebook
        if not isinstance(notebook, dict) or not isinstance(_raw_cells(notebook), list):
            raise ReadError("not a notebook")
        cells = [
            _parse_cell(raw, number)
            for number, raw in enumerate(_raw_cells(notebook), start=1)
            if isinstance(raw, dict)
        ]
    except RecursionError as error:
        raise ReadError("nested too deeply") from error
    except ValueError as error:
        raise ReadError("not valid JSON") from error
    metadata = notebook.get("metadata")
    return cells, {**(metadata if isinstance(metadata, dict) else {}), **_unread_levels(levels)}


def _unread_levels(notebook: object) -> dict[str, object]:
    """Return the fields outside the notebook's metadata that state a confidentiality.

    The outputs of a cell may have any field.
    """
    if not isinstance(notebook, dict):
        return {}
    is_mapping = isinstance(notebook.get("metadata"), dict)
    known = ("cells", "metadata") if is_mapping else ("cells",)
    fields = {name: value for name, value in notebook.items() if name not in known}
    cells = notebook.get("cells")
    dicts = [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []
    fields["cell"] = [
        {name: it for name, it in cell.items() if name != "outputs"} for cell in dicts
    ]
    return stated_levels(fields)


def _upgrade(text: str) -> Any:
    """Return the notebook in the present format; ``None`` if nbformat cannot convert it."""
    import nbformat
    from nbformat import converter, reader

    try:
        return converter.convert(reader.reads(text), _CURRENT_VERSION)  # type: ignore[no-untyped-call]
    except (nbformat.ValidationError, ValueError, LookupError, AttributeError, TypeError):
        return None
    except NameError:  # a bug of nbformat with cells that its first version did not have
        return None


def _raw_cells(notebook: Mapping[str, Any]) -> Any:
    """Return the cells; in version 3 of the format they are in worksheets."""
    if isinstance(notebook.get("cells"), list):
        return notebook["cells"]
    sheets = notebook.get("worksheets")
    if not isinstance(sheets, list):
        return None
    lists = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)]
    return [cell for cells in lists if isinstance(cells, list) for cell in cells]


def _parse_cell(raw: Mapping[str, Any], number: int) -> _Cell:
    source = _EMBEDDED.sub("", _join_lines(raw.get("source", raw.get("input", ""))))
    kind = raw.get("cell_type")
    if kind == "heading":
        level = raw.get("level")
        marks = "#" * (level if isinstance(level, int) and 1 <= level <= 6 else 1)
        return _Cell(number, "markdown", f"{marks} {' '.join(source.split())}")
    if kind == "code":
        outputs = raw.get("outputs")
        listed = outputs if isinstance(outputs, list) else []
        texts = (_parse_output(output) for output in listed if isinstance(output, dict))
        return _Cell(number, "code", source, tuple(filter(None, texts)))
    return _Cell(number, "markdown" if kind in ("markdown", "html") else "raw", source)


def _parse_output(raw: Mapping[str, Any]) -> str:
    kind = raw.get("output_type")
    if kind == "stream":
        is_printed = raw.get("name", raw.get("stream", "stdout")) == "stdout"
        text = _join_lines(raw.get("text")) if is_printed else ""
    elif kind in ("error", "pyerr"):
        text = f"{_join_lines(raw.get('ename'))}: {_join_lines(raw.get('evalue'))}".strip(": ")
    else:
        text = _result_text(raw)
    text = _EMBEDDED.sub("", "\n".join(_terminal_lines(text))).strip("\n").rstrip()
    return text if len(text) <= _MAX_OUTPUT else f"{text[:_MAX_OUTPUT].rstrip()}…"


def _result_text(raw: Mapping[str, Any]) -> str:
    """Return a result as text, or "" for a picture or a control."""
    data = raw.get("data")
    if not isinstance(data, dict):
        return _join_lines(raw.get("text"))
    is_result = raw.get("output_type") in ("execute_result", "pyout")
    if not is_result and any(str(kind).startswith(_NO_TEXT) for kind in data):
        return ""
    return _join_lines(data.get("text/plain"))


def _terminal_lines(text: str) -> Iterator[str]:
    """Yield lines as a terminal shows them: without colours, progress bars in their last state."""
    for line in _TERMINAL.sub("", text[: 100 * _MAX_OUTPUT]).replace("\r\n", "\n").split("\n"):
        yield line.rstrip("\r").rpartition("\r")[2]


def _join_lines(value: object) -> str:
    """Return a string, which notebooks may store as a list of lines."""
    if isinstance(value, list):
        value = "".join(part for part in value if isinstance(part, str))
    return storable(value) if isinstance(value, str) else ""
