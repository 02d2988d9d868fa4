"""Notebooks: cells and printed results as text."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadLimits
from catalog.ingest.readers.notebook import NotebookReader


def read(data: bytes | dict[str, Any], limits: ReadLimits = DEFAULT_LIMITS) -> ParsedDocument:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    document, *remarks = NotebookReader().read(io.BytesIO(raw), "a/lab.ipynb", limits=limits)
    assert len(remarks) == (isinstance(document, ParsedDocument) and "…" in document.text)
    assert isinstance(document, ParsedDocument)
    return document


def notebook(*cells: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": list(cells)}


def markdown(source: str | list[str]) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source}


def code(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": list(outputs)}


def printed(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def result(kind: str = "execute_result", **data: str) -> dict[str, Any]:
    types = {"text": "text/plain", "html": "text/html", "png": "image/png"}
    return {"output_type": kind, "data": {types[name]: value for name, value in data.items()}}


def test_cells_and_printed_results_follow_one_another() -> None:
    doc = read(
        notebook(
            markdown(["# Keys\n", "\n", "Some *prose*.\n"]),
            code("print(1)\n1 + 1\n", printed("1\n"), result(text="2", html="<b>2</b>")),
            {"cell_type": "raw", "source": "# not a heading"},
            markdown("## More\n\n| a |\n|---|\n| 1 |"),
            kernelspec={"language": "python"},
            authors=[{"name": "Ann"}],
        )
    )
    assert doc.text == (
        "# Keys\n\nSome *prose*.\n\n```python\nprint(1)\n1 + 1\n```\n\n```\n1\n```\n\n```\n2\n```"
        "\n\n# not a heading\n\n## More\n\n| a |\n|---|\n| 1 |"
    )
    assert [doc.text[start:end] for start, end in doc.atomic] == [
        "```python\nprint(1)\n1 + 1\n```", "```\n1\n```", "```\n2\n```", "| a |\n|---|\n| 1 |",
    ]  # fmt: skip
    headings = [(h.level, h.title, doc.text[h.start : h.end]) for h in doc.headings]
    assert headings == [(1, "Keys", "# Keys"), (2, "More", "## More")]
    assert (doc.title, doc.file_type) == ("Keys", "ipynb")
    assert dict(doc.metadata) == {"kernel": "python", "author": "Ann"}


def test_without_a_heading_the_stem_is_the_title() -> None:
    assert read(notebook(code("x"))).title == "lab"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (printed("to the log", "stderr"), None),
        (printed("\x1b[31mred\x1b[0m"), "red"),
        (printed("10%\r50%\r100%\r\ndone"), "100%\ndone"),
        (printed("x" * 2001), "x" * 2000 + "…"),
        (printed("x" * 2000), "x" * 2000),
        (result(text="<Figure>", png="aaaa", kind="display_data"), None),
        (result(text="a  b", kind="display_data"), "a  b"),
        (result(html="<b>only</b>"), "only"),
        (result(html="<script>x</script>"), None),
        ({"output_type": "error", "ename": "KeyError", "evalue": "'k'"}, "KeyError: 'k'"),
        ({"output_type": "error", "ename": "Stop", "evalue": "", "traceback": ["t"]}, "Stop"),
    ],
)
def test_only_the_text_of_an_output_is_kept(output: dict[str, Any], text: str | None) -> None:
    shown = "" if text is None else f"\n\n```\n{text}\n```"
    assert read(notebook(code("f()", output))).text == f"```\nf()\n```{shown}"


def test_embedded_pictures_are_left_out() -> None:
    picture = "![plot](data:image/png;base64,iVBORw0KGgo=)"
    assert read(notebook(markdown(f"See {picture}."))).text == "See ![plot]()."


def test_a_fence_in_code_does_not_end_its_block_and_an_open_one_ends_with_its_cell() -> None:
    doc = read(notebook(markdown("```\nopen"), code('"""\n```\n# no\n```"""'), markdown("# Yes")))
    assert [heading.title for heading in doc.headings] == ["Yes"]
    assert '````\n"""\n```\n# no\n```"""\n````' in doc.text


def test_a_notebook_before_version_4_is_refused_with_advice() -> None:
    cells = [{"cell_type": "heading", "level": 2, "source": "Old"}]
    with pytest.raises(ReadError, match="open it in Jupyter and save it"):
        read({"nbformat": 3, "metadata": {}, "worksheets": [{"cells": cells}]})


def test_a_table_that_is_only_html_is_read() -> None:
    table = (
        "<table><tr><th>port</th><th>rise</th></tr><tr><td>Blakeney</td><td>3.71</td></tr></table>"
    )
    for kind in ("execute_result", "display_data"):
        doc = read(notebook(code("df.head()", result(html=table, kind=kind))))
        assert doc.text == "```\ndf.head()\n```\n\n```\nport | rise\nBlakeney | 3.71\n```"


def test_cells_of_unknown_shape_lose_nothing_that_is_text() -> None:
    cells = [{"cell_type": "code", "source": "a"}, {"source": "b"}, "c", code("d", printed("")), {}]
    doc = read({"nbformat": 4, "cells": cells, "metadata": None})
    assert doc.text == "```\na\n```\n\nb\n\n```\nd\n```"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "not valid JSON"),
        (b"[1]", "not a notebook"),
        (b'{"nbformat": 4}', "not a notebook"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"nbformat":4,"cells":[' + b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_notebook_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ReadError, match=reason):
        read(data)


def test_limits_and_emptiness_are_named() -> None:
    with pytest.raises(EmptyDocumentError):
        read(notebook(code(" "), markdown("")))
    with pytest.raises(ReadError, match="too large: over 10 bytes"):
        read(notebook(code("x")), replace(DEFAULT_LIMITS, document_bytes=10))
    with pytest.raises(ReadError, match="too long: over 5 characters"):
        read(notebook(markdown("sixsix")), replace(DEFAULT_LIMITS, characters=5))


def test_text_that_cannot_be_stored_is_replaced() -> None:
    raw = json.dumps(notebook(markdown("a\x00b\ud800"))).encode()
    assert read(raw).text == "a\ufffdb\ufffd"
