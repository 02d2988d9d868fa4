"""Documents as resources: names that come back, pages, large documents, what is refused."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate

from catalog.core.errors import DocumentNotFoundError, StoreBusyError
from catalog.interfaces.calls import document_dict
from catalog.interfaces.server.mcp.protocol import (
    MAX_BYTES,
    TEMPLATE,
    DocumentResources,
    document_uri,
    parse_document_uri,
)
from catalog.library.get import DocumentLines, NumberedLine
from catalog.store.chunks import StoredDocument
from interfaces.mcp.stubs import StubEngine, status

PATHS = [
    "a.md",
    "deep/er/a b.md",
    "what?.md",
    "100%25.md",
    "c#.md",
    "ünï/日本.txt",
    "a\\b.md",
    "x:12-20",
    "a//b.md",
    "\udc80.md",
]


def entry(dataset, path, title="", summary=""):
    return {"dataset": dataset, "path": path, "title": title, "summary": summary}


def listing(**paths):
    """An engine with these datasets of paths."""

    def browse(asked):
        all_of_it = sorted(paths[asked["dataset"]])
        part = all_of_it[asked["offset"] : asked["offset"] + asked["limit"]]
        entries = [entry(asked["dataset"], path) for path in part]
        return {"entries": entries, "total": len(all_of_it)}

    counts = {name: len(some) for name, some in paths.items()}
    return DocumentResources(StubEngine(status=lambda _: status(**counts), browse=browse))


def holding(text, path="a.md"):
    """An engine with one document, cut as the operation cuts."""

    def get(asked):
        if asked["reference"] != f"notes:{path}":
            raise DocumentNotFoundError("no document")
        about = dict.fromkeys(StoredDocument.__dataclass_fields__, "")
        document = StoredDocument(**{**about, "path": path, "text": text, "metadata": {}})
        lines = tuple(NumberedLine(one, n, n, n) for n, one in enumerate(text.split("\n"), start=1))
        part = DocumentLines(document, lines, len(lines))
        return document_dict(part, asked["max_bytes"])

    return DocumentResources(StubEngine(get=get))


def every_page(resources):
    pages, cursor = [], None
    while True:
        page = resources.page(cursor)
        pages.append([parse_document_uri(one.uri) for one in page.resources])
        cursor = page.next_cursor
        if cursor is None:
            return pages


@pytest.mark.parametrize("path", PATHS)
def test_a_name_comes_back_from_its_address(path):
    assert parse_document_uri(document_uri("my notes/x", path)) == ("my notes/x", path)


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_name_comes_back_from_its_address(dataset, path):
    assert parse_document_uri(document_uri(dataset, path)) == (dataset, path)


@pytest.mark.parametrize("path", [one for one in PATHS if one != "\udc80.md"])
def test_an_address_is_the_template_filled_in(path):
    template = UriTemplate.parse(TEMPLATE.uri_template)
    matched = template.match(document_uri("my notes", path))
    assert matched == {"dataset": "my notes", "path": path}


@pytest.mark.parametrize(
    "uri",
    ["", "catalog://", "catalog://notes", "catalog://notes/", "file:///etc/passwd", "catalog:///a"],
)
def test_an_address_without_dataset_or_path_is_unknown(uri):
    with pytest.raises(MCPError) as raised:
        parse_document_uri(uri)
    assert raised.value.code == -32602
    assert raised.value.data == {"uri": uri}


def test_an_address_that_is_no_utf_8_is_unknown():
    with pytest.raises(MCPError, match="there is no resource"):
        parse_document_uri("catalog://notes/%ff.md")


def test_pages_hold_every_document_of_every_dataset_once():
    many = [f"{number:03}.md" for number in range(150)]
    pages = every_page(listing(b=many, a=["x.md"], empty=[], c=["y.md", "z.md"]))
    assert [len(page) for page in pages] == [100, 53]
    expected = [("b", path) for path in many] + [("a", "x.md"), ("c", "y.md"), ("c", "z.md")]
    assert [name for page in pages for name in page] == expected


def test_a_page_that_is_just_full_is_followed_by_the_next_dataset():
    pages = every_page(listing(a=[f"{number:03}" for number in range(100)], b=["x"]))
    assert [len(page) for page in pages] == [100, 1]


def test_documents_that_went_between_pages_end_the_listing():
    resources = listing(a=[f"{number:03}" for number in range(150)])
    cursor = resources.page(None).next_cursor
    fewer = listing(a=["only.md"])
    page = fewer.page(cursor)
    assert (page.resources, page.next_cursor) == ([], None)


def test_an_empty_store_has_no_resources():
    page = listing().page(None)
    assert (page.resources, page.next_cursor) == ([], None)


def encoded(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "ü",
        "!!!!",
        encoded("a"),
        encoded(["a"]),
        encoded(["a", -1]),
        encoded(["a", 10**9]),
        encoded(["a", "0"]),
        encoded(["gone", 0]),
        "W1tb" * 5000,
    ],
)
def test_a_cursor_that_was_not_given_out_is_refused(cursor):
    with pytest.raises(MCPError, match="start without one") as raised:
        listing(a=["x.md"]).page(cursor)
    assert raised.value.code == -32602


def test_metadata_of_a_document_is_listed_as_one_clean_line():
    def browse(_):
        told = entry("a", "x\x1b[31m.md", "Ti\ntle\u202e", "  sum\tmary " + "w " * 400)
        return {"entries": [told], "total": 1}

    engine = StubEngine(status=lambda _: status(a=1), browse=browse)
    (one,) = DocumentResources(engine).page(None).resources
    assert one.name == "x\ufffd[31m.md"
    assert one.title == "Ti tle\ufffd"
    assert one.description.startswith("sum mary w w")
    assert len(one.description) == 500
    assert one.description.endswith("…")
    assert one.mime_type == "text/markdown"
    assert parse_document_uri(one.uri) == ("a", "x\x1b[31m.md")


def test_a_document_is_given_whole():
    (content,) = holding("# A\n\nb").read("catalog://notes/a.md").contents
    assert (content.uri, content.text) == ("catalog://notes/a.md", "# A\n\nb")
    assert content.mime_type == "text/markdown"


def test_what_is_no_markdown_is_plain_text():
    (content,) = holding("a", "a.pdf").read("catalog://notes/a.pdf").contents
    assert content.mime_type == "text/plain"


def test_a_large_document_ends_with_how_to_get_the_rest():
    line = "x" * 99_999  # with its end 100,000 bytes: ten of them are 1 MB
    (content,) = holding("\n".join([line] * 12)).read("catalog://notes/a.md").contents
    text, _, pointer = content.text.rpartition("\n\n")
    assert text == "\n".join([line] * 10)
    assert "line 10 of 12" in pointer
    assert "line_start 11" in pointer
    assert '"notes:a.md"' in pointer


def test_a_single_line_beyond_the_limit_is_cut_between_characters():
    (content,) = holding("é" * 600_000 + "\nmore").read("catalog://notes/a.md").contents
    text, _, pointer = content.text.rpartition("\n\n")
    assert text == "é" * (MAX_BYTES // 2)
    assert "line 1, which is longer; line_start 2" in pointer
    (alone,) = holding("é" * 600_000).read("catalog://notes/a.md").contents
    assert "only the first 1000000 bytes of line 1, which is longer. For" in alone.text


def test_a_document_that_is_not_there_is_unknown():
    with pytest.raises(MCPError, match="//notes/b") as raised:
        holding("a").read("catalog://notes/b.md")
    assert raised.value.code == -32602
    assert raised.value.data == {"uri": "catalog://notes/b.md"}


def test_an_address_with_lines_behind_it_is_unknown():
    def get(_):
        return {"path": "a.md", "text": "a", "lines_total": 9, "line_end": 3}

    with pytest.raises(MCPError, match="there is no resource"):
        DocumentResources(StubEngine(get=get)).read("catalog://notes/a.md%3A3")


def test_other_errors_of_the_store_go_through():
    def busy(_):
        raise StoreBusyError("another process writes")

    with pytest.raises(StoreBusyError):
        DocumentResources(StubEngine(get=busy)).read("catalog://notes/a.md")
