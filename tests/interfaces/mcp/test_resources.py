"""Documents as resources: names that come back, pages, large documents, what is refused."""

import pytest
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate

from catalog.core.errors import DocumentNotFoundError, StoreBusyError
from catalog.interfaces.calls import cut_to_fit
from catalog.interfaces.mcp import MAX_BYTES, TEMPLATE, document_uri, list_documents, read_document
from catalog.library.get import DocumentLines, NumberedLine
from catalog.store.chunks import StoredDocument
from tables import table

PATHS = ["a.md", "deep/er/a b.md", "what?.md", "100%25.md", "c#.md", "ünï/日本.txt", "a\\b.md",
         "x:12-20", "a//b.md"]  # fmt: skip


class Holding:
    """An engine with these documents of ``my notes``, cut as the verb cuts."""

    def __init__(self, **texts):
        self.texts = texts

    def ask(self, verb, asked):
        if verb == "browse":
            some = sorted(self.texts)[asked["offset"] : asked["offset"] + asked["limit"]]
            about = {
                "dataset": "my notes",
                "title": "Ti\ntle\u202e",
                "summary": "sum " + "w " * 400,
            }
            return {"entries": [about | {"path": path} for path in some], "total": len(self.texts)}
        path = asked["reference"].removeprefix("my notes:").removesuffix(":3")
        if asked["dataset"] != "my notes" or path not in self.texts:
            raise DocumentNotFoundError("no document")
        about = dict.fromkeys(StoredDocument.__dataclass_fields__, "") | {"metadata": {}}
        document = StoredDocument(**about | {"path": path, "text": self.texts[path]})
        numbered = enumerate(document.text.split("\n"), start=1)
        lines = tuple(NumberedLine(one, n, n, n) for n, one in numbered)
        cut = cut_to_fit(DocumentLines(document, lines, len(lines)), asked["max_bytes"])
        return cut.to_dict()


def read(text, path="a.md"):
    uri = document_uri("my notes", path)
    (content,) = read_document(Holding(**{path: text}), uri).contents
    assert content.uri == uri
    return content


@pytest.mark.parametrize("path", PATHS)
def test_an_address_is_the_template_filled_in_and_reads_its_document(path):
    template = UriTemplate.parse(TEMPLATE.uri_template)
    uri = document_uri("my notes", path)
    assert template.match(uri) == {"dataset": "my notes", "path": path}
    assert read("text", path).text == "text"


@table("uri")
def test_any_other_address_is_unknown(uri):
    with pytest.raises(MCPError, match="there is no resource") as raised:
        read_document(Holding(**{"a.md": "text"}), uri)
    assert raised.value.code == -32602


@pytest.mark.parametrize(("count", "pages"), [(0, [0]), (100, [100]), (153, [100, 53])])
def test_pages_hold_every_document_once(count, pages):
    engine, cursor, found = Holding(**{f"{n:03}.md": "" for n in range(count)}), None, []
    while not found or cursor is not None:
        page = list_documents(engine, cursor)
        found.append([one.name for one in page.resources])
        cursor = page.next_cursor
    assert [len(page) for page in found] == pages
    assert sorted(name for page in found for name in page) == sorted(engine.texts)
    assert list_documents(Holding(), "100").next_cursor is None  # they went between two pages


@pytest.mark.parametrize("cursor", ["x", "ü", "-1", "1" * 9, "99999999", "0x1", "٥", "W1tb" * 5000])
def test_a_cursor_that_was_not_given_out_is_refused(cursor):
    with pytest.raises(MCPError, match="start without one") as raised:
        list_documents(Holding(), cursor)
    assert raised.value.code == -32602


def test_metadata_of_a_document_is_listed_as_one_clean_line():
    (one,) = list_documents(Holding(**{"x\x1b[31m.md": ""}), None).resources
    assert (one.name, one.title, one.mime_type) == ("x.md", "Ti tle", "text/markdown")
    assert one.description.startswith("sum w w")
    assert len(one.description) == 500
    assert one.description.endswith("…")


def test_a_document_is_given_whole():
    assert (read("# A\n\nb").text, read("").mime_type) == ("# A\n\nb", "text/markdown")
    assert read("a", "a.pdf").mime_type == "text/plain"


def test_a_large_document_ends_with_how_to_get_the_rest():
    line = "x" * 99_999  # with its end 100,000 bytes: ten of them are 1 MB
    text, _, pointer = read("\n".join([line] * 12)).text.rpartition("\n\n")
    assert text == "\n".join([line] * 10)
    assert "line 10 of 12" in pointer
    assert "line_start 11" in pointer
    assert "'my notes:a.md'" in pointer


def test_a_single_line_beyond_the_limit_is_cut_between_characters():
    text, _, pointer = read("é" * 600_000 + "\nmore").text.rpartition("\n\n")
    assert text == "é" * (MAX_BYTES // 2)
    assert "line 1, which is longer; line_start 2" in pointer


def test_other_errors_of_the_store_go_through():
    class Busy:
        def ask(self, verb, asked):
            raise StoreBusyError("another process writes")

    with pytest.raises(StoreBusyError):
        read_document(Busy(), "catalog://notes/a.md")
