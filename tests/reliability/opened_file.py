"""Opens a file where a citation says, without the product: what a reader would find there."""

import json
import re
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

_ENCODINGS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_CLOCK = re.compile(r"(?:(\d+):)?(\d\d):(\d\d)[.,](\d{3})")


def open_at(file: Path, locator: dict) -> str:
    """Return the text of the file from ``start`` to ``end`` of the locator's unit."""
    first, last = locator["start"], locator["end"]
    match locator["unit"]:
        case "line" | "record":
            return "\n".join(_lines(file)[first - 1 : last])
        case "cell":
            return _open_cells(file, first, last, locator["line_start"], locator["line_end"])
        case "page":
            from pypdf import PdfReader

            pages = PdfReader(file).pages[first - 1 : last]
            return "\n".join(page.extract_text() for page in pages)
        case "slide":
            return "\n".join(_slides(file)[first - 1 : last])
        case "paragraph":
            paragraphs = {
                ".docx": _docx_paragraphs, ".odt": _odt_paragraphs, ".rtf": _rtf_paragraphs,
                ".mhtml": _marked_paragraphs, ".fodt": _marked_paragraphs,
                ".fb2": _marked_paragraphs,
            }.get(file.suffix, _epub_paragraphs)  # fmt: skip
            return "\n".join(paragraphs(file)[first - 1 : last])
        case "row":
            return _open_sheets(file, locator["cells"])
        case "time":
            said = [text for start, end, text in _said(file) if start <= last and end >= first]
            return "\n".join(said)
    raise AssertionError(locator)


def read_text(file: Path) -> str:
    """Return the text of a file in the encoding that its first bytes name, else UTF-8."""
    data = file.read_bytes()
    return data.decode(_ENCODINGS.get(data[:2], "utf-8-sig"), "replace")


def _lines(file: Path) -> list[str]:
    text = read_text(file)
    if file.suffix in (".html", ".xhtml", ".htm"):
        return _html_lines(text)
    return re.split(r"\r\n|\r|\n", text)


class _Words(HTMLParser):
    """The text between the tags, by line."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.lines = [""] * lines

    def handle_data(self, data: str) -> None:
        for number, part in enumerate(data.split("\n"), start=self.getpos()[0] - 1):
            if number < len(self.lines):
                self.lines[number] += f"{part} "


def _html_lines(text: str) -> list[str]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    words = _Words(text.count("\n") + 1)
    words.feed(text)
    words.close()
    return words.lines


def _open_cells(file: Path, first: int, last: int, line: int | None, line_end: int | None) -> str:
    cells = json.loads(read_text(file))["cells"][first - 1 : last]
    if line is not None:
        return "\n".join("".join(cells[0]["source"]).split("\n")[line - 1 : line_end])
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    parts = [cell["source"] for cell in cells] + [
        output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs
    ]
    return "\n".join("".join(part) for part in parts)


def _odt_paragraphs(file: Path) -> list[str]:
    with zipfile.ZipFile(file) as archive:
        root = ET.fromstring(archive.read("content.xml"))
    blocks = (block for block in root.iter() if block.tag in ("{urn:t}h", "{urn:t}p"))
    texts = ["".join(block.itertext()) for block in blocks]
    return [text for text in texts if text]


def _rtf_paragraphs(file: Path) -> list[str]:
    parts = (part.rpartition("cpg1252 ")[2] for part in file.read_text().split("\\par"))
    return [part for part in parts if part.strip(" \n}")]


def _marked_paragraphs(file: Path) -> list[str]:
    return re.findall(r"<(?:h1|p|text:p)>(.*?)</", read_text(file))


def _open_sheets(file: Path, cells: str) -> str:
    """Return the texts of these cells: ``'On walnuts'!A1:C4, Costs!E2``."""
    found = []
    with zipfile.ZipFile(file) as archive:
        root = ET.fromstring(archive.read("xl/workbook.xml"))
        names = [sheet.get("name") for sheet in root.iter() if sheet.tag.endswith("}sheet")]
        for one in re.finditer(r"(?:'((?:[^']|'')+)'|(\w+))!([A-Z])(\d+)(?::([A-Z])(\d+))?", cells):
            name = (one[1] or one[2]).replace("''", "'")
            left, top, right, bottom = one[3], int(one[4]), one[5] or one[3], int(one[6] or one[4])
            sheet = ET.fromstring(archive.read(f"xl/s{names.index(name) + 1}.xml"))
            for cell in (each for each in sheet.iter() if each.tag.endswith("}c")):
                column, row = cell.get("r")[0], int(cell.get("r")[1:])
                if left <= column <= right and top <= row <= bottom:
                    found.append("".join(cell.itertext()))
            found.append(name)
    return "\n".join(found)


def _slides(file: Path) -> list[str]:
    from pptx import Presentation

    return [
        "\n".join(shape.text_frame.text for shape in slide.shapes if shape.has_text_frame)
        for slide in Presentation(str(file)).slides
    ]


def _docx_paragraphs(file: Path) -> list[str]:
    """Return the paragraphs with text, a row of a table as one."""
    from docx import Document
    from docx.table import Table

    texts = []
    for block in Document(str(file)).iter_inner_content():
        if isinstance(block, Table):
            texts += [" | ".join(cell.text for cell in row.cells) for row in block.rows]
        else:
            texts.append(block.text)
    return [text for text in texts if text.strip()]


def _epub_paragraphs(file: Path) -> list[str]:
    """Return what stands in the blocks of the chapters, in the order of the spine."""
    with zipfile.ZipFile(file) as book:
        package = ET.fromstring(book.read("OEBPS/content.opf"))
        names = {item.get("id"): item.get("href") for item in package.findall(".//{*}item")}
        spine = [names[item.get("idref")] for item in package.findall(".//{*}itemref")]
        roots = [ET.fromstring(book.read(f"OEBPS/{chapter}")) for chapter in spine]
    return [
        " ".join("".join(block.itertext()).split()) for root in roots for block in _blocks(root)
    ]


def _blocks(element: ET.Element) -> Iterator[ET.Element]:
    """Yield the outermost elements that begin on a line of their own and hold words."""
    if element.tag.rpartition("}")[2] in ("h1", "h2", "p", "li", "tr"):
        yield element
        return
    for child in element:
        yield from _blocks(child)


def _said(file: Path) -> list[tuple[float, float, str]]:
    """Return start, end and words of every cue."""
    text = read_text(file)
    if file.suffix == ".json":
        segments = json.loads(text)["segments"]
        return [(item["start"], item["end"], item["text"]) for item in segments]
    if file.suffix == ".tsv":
        rows = [line.split("\t") for line in text.splitlines()[1:]]
        return [(int(start) / 1000, int(end) / 1000, words) for start, end, words in rows]
    if file.suffix == ".md":
        parts = re.split(rf"\[({_CLOCK.pattern})\]", text)
        return [
            (_seconds(_CLOCK.match(parts[at])), _seconds(_CLOCK.match(parts[at])), parts[at + 5])
            for at in range(1, len(parts), 6)
        ]
    times = list(_CLOCK.finditer(text))
    cues = zip(times[::2], times[1::2], [*times[2::2], None], strict=False)
    return [
        (_seconds(start), _seconds(end), text[end.end() : None if after is None else after.start()])
        for start, end, after in cues
    ]


def _seconds(clock: re.Match[str]) -> float:
    hours, minutes, seconds, milliseconds = (int(part or 0) for part in clock.groups())
    return 3600 * hours + 60 * minutes + seconds + milliseconds / 1000
