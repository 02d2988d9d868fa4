"""The same text in the formats people keep: each writer gives the bytes of one file."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Iterable, Sequence
from zipfile import ZipFile, ZipInfo

from catalog.ingest.readers.base import file_type

Cue = tuple[float, float, str]


def written(path: str, title: str, paragraphs: Sequence[str], tags: Sequence[str]) -> bytes:
    """A document as a file of the kind that the path's extension names."""
    return _WRITERS[file_type(path)](title, paragraphs, tags)


def _markdown(title: str, paragraphs: Sequence[str], tags: Sequence[str]) -> bytes:
    front = f"---\ntags: [{', '.join(tags)}]\n---\n" if tags else ""
    return f"{front}# {title}\n\n{_blocks(paragraphs)}\n".encode()


def _plain(title: str, paragraphs: Sequence[str], _tags: Sequence[str]) -> bytes:
    return f"{title}\n\n{_blocks(paragraphs)}\n".encode()


def _web(title: str, paragraphs: Sequence[str], tags: Sequence[str]) -> bytes:
    body = "\n".join(f"<p>{html.escape(one)}</p>" for one in paragraphs)
    named = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{named}</title>'
        f'<meta name="keywords" content="{html.escape(", ".join(tags))}"></head>'
        f"<body><h1>{named}</h1>\n{body}\n</body></html>\n"
    ).encode()


def _word(title: str, paragraphs: Sequence[str], tags: Sequence[str]) -> bytes:
    from docx import Document

    document = Document()
    document.core_properties.title = title
    document.core_properties.keywords = ", ".join(tags)
    document.add_heading(title, level=1)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    saved = io.BytesIO()
    document.save(saved)
    return _undated(saved)


def _pdf(title: str, paragraphs: Sequence[str], tags: Sequence[str]) -> bytes:
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import Paragraph, SimpleDocTemplate

    styles = getSampleStyleSheet()
    saved = io.BytesIO()
    page = SimpleDocTemplate(saved, title=title, keywords=", ".join(tags), invariant=1)
    page.build(
        [Paragraph(html.escape(title), styles["Heading1"])]
        + [Paragraph(html.escape(one), styles["BodyText"]) for one in paragraphs]
    )
    return saved.getvalue()


def _notebook(title: str, paragraphs: Sequence[str], tags: Sequence[str]) -> bytes:
    import nbformat
    from nbformat.v4 import new_markdown_cell, new_notebook

    sources = [f"# {title}", *paragraphs]
    cells = [
        new_markdown_cell(source, id=f"cell-{number}") for number, source in enumerate(sources)
    ]
    book = new_notebook(cells=cells, metadata={"title": title, "tags": list(tags)})
    return str(nbformat.writes(book)).encode()


_WRITERS: dict[str, Callable[[str, Sequence[str], Sequence[str]], bytes]] = {
    "md": _markdown,
    "txt": _plain,
    "html": _web,
    "docx": _word,
    "pdf": _pdf,
    "ipynb": _notebook,
}


def subtitles(cues: Iterable[Cue]) -> bytes:
    """An SRT file."""
    blocks = (
        f"{number}\n{_srt_time(start)} --> {_srt_time(end)}\n{text}\n"
        for number, (start, end, text) in enumerate(cues, start=1)
    )
    return "\n".join(blocks).encode()


def frame(video: str, second: int, shown: Sequence[str]) -> bytes:
    """A description of one frame, as the converter of seed 000 writes it."""
    at = f"{second // 60:02}:{second % 60:02}"
    return (
        f"# Visual Frame at {at}\n\n---\nvideo_source: `{video}.mp4`\n"
        f"frame_file: `{frame_name(second)}.jpg`\ntimestamp: {at}\n---\n\n"
        f"## Description\n\nOn the screen: {', '.join(shown)}.\n"
    ).encode()


def frame_name(second: int) -> str:
    """``frame_01m05s``."""
    return f"frame_{second // 60:02}m{second % 60:02}s"


def _srt_time(seconds: float) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02},{thousandths:03}"


def _undated(archive: io.BytesIO) -> bytes:
    """The archive with no times of its entries, so that the same text is the same file."""
    made = io.BytesIO()
    with ZipFile(archive) as old, ZipFile(made, "w") as new:
        for name in old.namelist():
            new.writestr(ZipInfo(name), old.read(name))
    return made.getvalue()


def _blocks(paragraphs: Sequence[str]) -> str:
    return "\n\n".join(paragraphs)
