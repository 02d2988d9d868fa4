"""Draw one page of a PDF in a process of its own: ``python -m … PAGE < request``.

The first line of the input is the cited text as JSON, the rest is the PDF. The output is a line of
JSON (:class:`~catalog.interfaces.server.page.files.DrawnPage` without the picture), then the PNG.
A hostile file can crash or fill only this process, which can open no connection and write no file.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing
from typing import TYPE_CHECKING

from catalog.ingest.readers.base import ReadLimits
from catalog.ingest.readers.pdf.lines import read_lines
from catalog.ingest.readers.worker import drop_rights, own_pipes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pypdfium2 import PdfPage, PdfPosConv, PdfTextPage


WIDTH, HEIGHT = 1100, 2200  # pixels, at most
_LEAST = 4  # letters and digits of a line that is looked for in the cited text
_OVERLAP = 8  # letters and digits of a line's end that begin the cited text, or the reverse
_MOST_BOXES = 2000
_NO_LETTERS = re.compile(r"[\W_]+")
_Box = tuple[int, int, int, int]


def main() -> None:
    """Read the request, draw, and write the answer."""
    requests, answers = own_pipes()
    import PIL.Image
    import PIL.PngImagePlugin  # noqa: F401  # both before rights are dropped
    import pypdfium2 as pdfium

    drop_rights(ReadLimits().memory_bytes)
    cited = _letters(json.loads(requests.readline()))
    with (
        closing(pdfium.PdfDocument(requests.read())) as document,
        closing(document[int(sys.argv[1]) - 1]) as page,
        closing(page.get_textpage()) as textpage,
    ):
        width, height = page.get_size()
        bitmap = page.render(scale=min(WIDTH / width, HEIGHT / height))
        places = bitmap.get_posconv(page)
        boxes = list(find_boxes(page, textpage, places, cited)) if cited else []
        told = {"width": bitmap.width, "height": bitmap.height, "boxes": boxes}
        answers.write(json.dumps(told).encode() + b"\n")
        bitmap.to_pil().save(answers, format="PNG")
        answers.flush()


def find_boxes(
    page: PdfPage, textpage: PdfTextPage, places: PdfPosConv, cited: str
) -> Iterator[_Box]:
    """Yield left, top, width and height in pixels of each line with some of the cited text."""
    for line in read_lines(page, textpage)[:_MOST_BOXES]:
        letters = _letters(line.text)
        if (len(letters) >= _LEAST and letters in cited) or _share_an_end(letters, cited):
            count = textpage.count_rects(line.first, line.stop - line.first)
            left, bottom, right, top = zip(*map(textpage.get_rect, range(count)), strict=True)
            corners = [
                places.to_bitmap(min(left), max(top)),
                places.to_bitmap(max(right), min(bottom)),
            ]
            (x0, x1), (y0, y1) = (sorted(axis) for axis in zip(*corners, strict=True))
            yield x0, y0, x1 - x0, y1 - y0


def _share_an_end(line: str, cited: str) -> bool:
    """Return whether the cited text begins or ends inside the line, or is all of a part of it."""
    return len(cited) >= _OVERLAP <= len(line) and (
        cited in line
        or any(
            cited.startswith(line[-length:]) or cited.endswith(line[:length])
            for length in range(_OVERLAP, min(len(line), len(cited)) + 1)
        )
    )


def _letters(text: str) -> str:
    return _NO_LETTERS.sub("", text).casefold()


if __name__ == "__main__":
    main()
