"""Jupyter notebooks: prose as Markdown, code and its printed results as fenced blocks."""

import re
from contextlib import suppress
from typing import Any, BinaryIO

from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.core.places import Places, PlacesBuilder
from catalog.core.text import storable
from catalog.ingest.chunking.boundaries import iter_lines
from catalog.ingest.readers.base import Items, JoinedText, ReadFailure, ReadLimits, read_bytes
from catalog.ingest.readers.decoding import decode
from catalog.ingest.readers.html import HtmlReader
from catalog.ingest.readers.markdown import scan_markdown
from catalog.ingest.readers.metadata import normalise, read_json, stated_levels

_MAX_OUTPUT = 2000
"""Characters of one output that are kept."""
_EMBEDDED = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=]+")
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NO_TEXT = ("image/", "application/vnd.jupyter.widget", "application/javascript")
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")


class NotebookReader:
    """Read the cells in order; pictures and controls in the outputs are left out."""

    def read(self, handle: BinaryIO, path: str, *, limits: ReadLimits) -> Items:
        """Yield the document of the file, and a remark if long outputs are cut.

        ``kernel`` is the language of its code. Raises ``ReadError`` if it is not a notebook of
        version 4, is over a limit, or has no text.
        """
        cells, metadata = _parse(decode(read_bytes(handle, limits.document_bytes)))
        fields, joined, cut = _fields_of(metadata), JoinedText(limits, "cell"), 0
        for number, cell in enumerate(cells, start=1):
            cell = cell if isinstance(cell, dict) else {}
            source = _EMBEDDED.sub("", _join_lines(cell.get("source")))
            shown, here = source.strip("\r\n").rstrip(), Places("cell", (0,), (number,))
            if cell.get("cell_type") == "code":
                if shown:
                    block = _fence(shown, fields["kernel"] or "")
                    places = _places(number, source, block, fence=1)
                    joined.add(block, atomic=[(0, len(block))], places=places)
                for output in filter(None, map(_read_output, _objects(cell.get("outputs")))):
                    cut += len(output) > _MAX_OUTPUT
                    block = _fence(output[:_MAX_OUTPUT] + "…" * (len(output) > _MAX_OUTPUT), "")
                    joined.add(block, atomic=[(0, len(block))], places=here)
                continue
            is_markdown = cell.get("cell_type") in ("markdown", "html")
            headings, atomic, tables, _ = scan_markdown(shown) if is_markdown else ((),) * 4
            places = _places(number, source, shown)
            joined.add(shown, headings, atomic, places=places, tables=tables)
        yield joined.document(path, file_type="ipynb", metadata=normalise(fields))
        if cut:
            yield ReadFailure(path, f"{cut:,} outputs are cut after {_MAX_OUTPUT:,} characters")


def _parse(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the cells and the notebook's own metadata; raise ``ReadError`` without any."""
    try:
        notebook = read_json(text)
    except RecursionError as error:
        raise ReadError("nested too deeply") from error
    except ValueError as error:
        raise ReadError("not valid JSON") from error
    if isinstance(notebook, dict) and isinstance(notebook.get("worksheets"), list):
        raise ReadError("a notebook of version 3 or older: open it in Jupyter and save it")
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ReadError("not a notebook")
    metadata, cells = notebook.get("metadata"), _objects(notebook["cells"])
    others = {name: value for name, value in notebook.items() if name not in ("metadata", "cells")}
    others["cell"] = [{**cell, "outputs": None} for cell in cells]
    fields = metadata if isinstance(metadata, dict) else {"metadata": metadata}
    levels = {f"notebook.{name}": value for name, value in stated_levels(others).items()}
    return notebook["cells"], {**fields, **levels}


def _fields_of(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the plain fields, with the language of the code as ``kernel``, and the authors."""
    plain = {name: value for name, value in metadata.items() if not isinstance(value, dict)}
    authors = plain.pop("authors", None) or [plain.get("author")]
    names = [one.get("name") if isinstance(one, dict) else one for one in authors]
    author = names[0] if len(names) == 1 else names
    stated = ((metadata.get("language_info"), "name"), (metadata.get("kernelspec"), "language"))
    languages = (str(one.get(key)) for one, key in stated if isinstance(one, dict) and one.get(key))
    kernel = next(filter(_LANGUAGE.fullmatch, languages), None)
    return {**plain, **stated_levels(metadata), "kernel": kernel, "author": author}


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _places(number: int, source: str, block: str, *, fence: int = 0) -> Places:
    """Return the lines of the source in a block; a fence has the place of the line next to it."""
    builder = PlacesBuilder("cell")
    first = 1 + sum(1 for _ in iter_lines(source[: len(source) - len(source.lstrip("\r\n"))]))
    starts = [line.start for line in iter_lines(block)]
    last = first + len(starts) - 1 - 2 * fence
    for line, start in enumerate(starts, start=first - fence):
        builder.add(start, number, min(last, max(first, line)))
    return builder.places()


def _fence(text: str, language: str) -> str:
    """Return a fenced block whose fence is longer than any in the text."""
    fence = "`" * (1 + max((len(mark) for mark in re.findall("`{3,}", text)), default=2))
    return f"{fence}{language}\n{text}\n{fence}"


def _read_output(raw: dict[str, Any]) -> str:
    """Return what is printed, an error, or a result as text; "" for a picture or a control."""
    kind, data = raw.get("output_type"), raw.get("data")
    text = _join_lines(raw.get("text"))
    if kind == "stream":
        text = text if raw.get("name", "stdout") == "stdout" else ""
    elif kind == "error":
        text = f"{_join_lines(raw.get('ename'))}: {_join_lines(raw.get('evalue'))}".strip(": ")
    elif isinstance(data, dict):
        is_picture = kind != "execute_result" and any(str(one).startswith(_NO_TEXT) for one in data)
        text = "" if is_picture else _join_lines(data.get("text/plain"))
        page = "" if is_picture else _join_lines(data.get("text/html"))
        if page and not text.strip():
            with suppress(EmptyDocumentError):
                text = HtmlReader().parse(page, "output.html").text
    # As a terminal shows it: without colours, progress bars in their last state.
    lines = _TERMINAL.sub("", text[: 100 * _MAX_OUTPUT]).replace("\r\n", "\n").split("\n")
    shown = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    return _EMBEDDED.sub("", shown).strip("\n").rstrip()


def _join_lines(value: object) -> str:
    """Return a string, which notebooks may store as a list of lines."""
    if isinstance(value, list):
        value = "".join(part for part in value if isinstance(part, str))
    return storable(value) if isinstance(value, str) else ""
