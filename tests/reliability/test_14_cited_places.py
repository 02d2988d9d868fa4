"""Every format's citations open in the file where the words stand, and ``get`` takes them."""

import json
import re
import zipfile
from functools import cache

import pytest

from catalog.core.errors import InputError
from catalog.ingest.readers.registry import FORMATS
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.terminal import Form, render
from catalog.interfaces.tools import call_tool
from catalog.library.get import find_document
from catalog.library.indexing import Indexer
from fakes import open_library
from outlook_file import outlook_message
from reliability.opened_file import open_at, read_text
from tables import read_cases, table
from workbooks import workbook

WORDS = ("quarry", "lantern", "meadow", "orchard", "pebble", "walnut", "thistle", "harbour")
ODD = "cafe\u0301 na\u0308ive \U0001f469\u200d\U0001f52c ﬁre"
FILLER = [f"Sentence {n} says more of what nobody asks for." for n in range(12)]
"""Enough that each word has passages of its own."""


def paragraphs():
    for word in WORDS:
        yield word.title(), [f"The {word} & its kin stand here, naïve ones.", *FILLER]


def markdown(front=""):
    return front + "\n".join(f"# {title}\n\n" + "\n".join(lines) for title, lines in paragraphs())


def sections(heading):
    """Each title as the markup writes a heading, and its lines."""
    return "\n".join(
        "\n".join((heading.format(title), "", *lines, "")) for title, lines in paragraphs()
    )


def rst():
    blocks = (f"{title}\n{'=' * 12}\n\n" + "\n".join(lines) for title, lines in paragraphs())
    return ":Author: A. Nobody\n:Date: 2024-05-01\n\n" + "\n\n".join(blocks)


def html():
    """A page with all that keeps text and source apart."""
    parts = [
        "<!DOCTYPE html>\n<html>\n<head>\n<title>All\nwords</title>\n<style>\np { color: red }\n"
        "</style>\n<script>\nif (a < b) { write('<p>quarry lantern</p>'); }\n</script>\n</head>\n"
        "<body\n  class='wide > narrow'>\n<nav>\nHome\nquarry\n</nav>\n<!-- lantern\nmeadow -->\n"
    ]
    for title, (first, *others) in paragraphs():
        escaped = first.replace("&", "&amp;").replace("ï", "&iuml;")
        parts.append(f"<h1\n>{title}</h1\n><p>{escaped.replace(' stand', chr(10) + 'stand')}</p>\n")
        parts.append("<ul>\n" + "".join(f"  <li>{line}\n  </li>\n" for line in others) + "</ul>\n")
        parts.append(
            f"<table>\n<tr>\n<td>{title}</td>\n<td>cell</td></tr></table>\n<pre>\n\n  a\n b\n</pre>"
        )
    return "".join(parts) + "</body>\n</html>\n"


def notebook():
    cells = []
    for title, lines in paragraphs():
        code = f"\n\nimport os\n# {lines[0]}\nprint(1)"
        output = {"output_type": "stream", "name": "stdout", "text": ["printed walrus\n"]}
        prose = [f"# {title}\n", "\n", *(f"{line}\n" for line in lines)]
        cells += [
            {"cell_type": "markdown", "metadata": {}, "source": []},
            {"cell_type": "markdown", "metadata": {}, "source": prose},
            {"cell_type": "code", "metadata": {}, "source": code, "outputs": [output]},
        ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def rows():
    return enumerate(line for title, lines in paragraphs() for line in (title, *lines))


def cues():
    """Yield start and end in seconds, and the lines of a cue."""
    at = 0.0
    for _, lines in paragraphs():
        for line in lines:
            words = line.split()
            yield at, at + 4.5, (" ".join(words[:4]), " ".join(words[4:]))
            at += 5


def clock(seconds, point):
    whole, rest = divmod(round(1000 * seconds), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{rest:03}"


def srt(end="\n"):
    blocks = [
        (str(n), f"{clock(a, ',')} --> {clock(b, ',')}", *lines, "")
        for n, (a, b, lines) in enumerate(cues(), start=1)
    ]
    return end.join(line for block in blocks for line in block)


def vtt():
    """Later cues first, comments, styles and voices between."""
    blocks = [
        f"{clock(a, '.')} --> {clock(b, '.')}\n<v Ann>{lines[0]}\n{lines[1]}</v>\n"
        for a, b, lines in cues()
    ]
    half = len(blocks) // 2
    head = "WEBVTT\nLanguage: en\n\nNOTE\nquarry\nlantern\n\n"
    return head + "\n".join([*blocks[half:], *blocks[:half]])


def whisper():
    segments = [{"start": a, "end": b, "text": " ".join(lines)} for a, b, lines in cues()]
    return json.dumps({"segments": segments}, indent=1)


def transcript():
    """A transcript as Markdown, under the header of a converter."""
    fields = "video_source: `talk.mp4`\nmodality: video_transcript"
    return f"# Talk\n\n---\n{fields}\n---\n\n## Transcript\n\n" + "\n\n".join(
        f"[{clock(a, '.')}] {' '.join(lines)}" for a, _, lines in cues()
    )


def records():
    lines = ["", '{"broken": 1}']
    for title, text in paragraphs():
        lines.append(
            json.dumps({"_id": f"record-{title}", "title": title, "text": "\n".join(text)})
        )
        lines.append("")
    return "\n".join(lines)


def exported():
    """A record in each line: its number is that of the line."""
    notes = [{"title": title, "text": " ".join(lines)} for title, lines in paragraphs()]
    return "[" + ",\n".join(json.dumps(note, ensure_ascii=False) for note in notes) + "]"


def evernote():
    notes = (
        f"<note><title>{title}</title><content><![CDATA[<en-note><div>{' '.join(lines)}</div>"
        "</en-note>]]></content></note>"
        for title, lines in paragraphs()
    )
    return "<en-export>" + "\n".join(notes) + "</en-export>"


def write_pdf(path):
    from reportlab.pdfgen.canvas import Canvas

    paper = Canvas(str(path))
    for _, lines in paragraphs():
        for number, line in enumerate(lines):
            paper.drawString(72, 700 - 15 * number, line)
        paper.showPage()
    paper.save()


def write_docx(path):
    from docx import Document

    paper = Document()
    for title, lines in paragraphs():
        paper.add_heading(title)
        paper.add_paragraph("")
        paper.add_paragraph(lines[0]).add_run().add_break()
        for line in lines[1:]:
            paper.add_paragraph(line, style="List Bullet")
        row = paper.add_table(1, 2).rows[0]
        row.cells[0].text, row.cells[1].text = "one cell", "another"
    paper.save(str(path))


def write_pptx(path):
    from pptx import Presentation

    deck = Presentation()
    for title, lines in paragraphs():
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text_frame.text = "\n".join(lines)
        deck.slides.add_slide(deck.slide_layouts[6])  # a blank one
    deck.save(str(path))


def write_epub(path):
    page = '<html xmlns="http://www.w3.org/1999/xhtml"><body>{}</body></html>'
    chapters = []
    for title, lines in paragraphs():
        items = "".join(f"<li>{line}</li>" for line in lines[1:])
        first = lines[0].replace("&", "&amp;")
        table = "<table><tr><td><p>one</p></td><td><p>two</p></td></tr></table>"
        chapters.append(
            page.format(f"<h1>{title}</h1><p>{first}<br/>again</p>{table}<ul>{items}</ul>")
        )
    items = "".join(
        f'<item id="c{n}" href="c{n}.xhtml" media-type="application/xhtml+xml"/>'
        for n in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("mimetype", "application/epub+zip")
        book.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OEBPS/content.opf"/></rootfiles></container>',
        )
        book.writestr(
            "OEBPS/content.opf",
            f'<package xmlns="http://www.idpf.org/2007/opf"><metadata/><manifest>{items}</manifest>'
            f"<spine>{spine}</spine></package>",
        )
        for number, chapter in enumerate(chapters):
            book.writestr(f"OEBPS/c{number}.xhtml", chapter)


def letter():
    fields = "Subject: Words\nFrom: ann@example.org\nDate: Fri, 31 May 2024 10:15:00 +0000\n"
    types = "MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n"
    return f"{fields}{types}Content-Transfer-Encoding: 8bit\n\n{markdown()}\n"


def mailbox():
    """A mail for each word."""
    mails = (
        f"From a@b.c Fri May 31 10:15:00 2024\nSubject: {title}\nFrom: a@b.c\n"
        f"Message-ID: <{title}@b.c>\nContent-Type: text/plain; charset=utf-8\n\n" + "\n".join(lines)
        for title, lines in paragraphs()
    )
    return "\n\n".join(mails) + "\n"


def web_archive():
    page = "".join(
        f"<h1>{title}</h1>" + "".join(f"<p>{line.replace('&', '&amp;')}</p>" for line in lines)
        for title, lines in paragraphs()
    )
    return (
        "From: <Saved>\nSubject: Words\nMIME-Version: 1.0\n"
        'Content-Type: multipart/related; boundary="b"; type="text/html"\n\n--b\n'
        "Content-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n"
        f"<html><body>{page}</body></html>\n--b--\n"
    )


FRONT_MATTER = "---\ntags: [a, b]\ntitle: Words\n---\n"
TEXTS = {
    "notes.md": markdown(FRONT_MATTER),
    "windows.md": markdown(FRONT_MATTER).replace("\n", "\r\n"),
    "talk.mp4.md": transcript(),
    "guide.rst": rst(),
    "guide.org": sections("* {}"),
    "guide.adoc": sections("== {}"),
    "guide.tex": sections("\\section{{{}}}"),
    "page.html": html(),
    "windows.html": html().replace("\n", "\r\n"),
    "plain.txt": markdown(),
    "old.txt": markdown().replace("\n", "\r"),
    "odd.txt": "\ufeff" + markdown().replace("naïve", ODD).replace("\n", "\r\n"),
    "code.py": markdown().replace("\n", "\n# "),
    "values.yaml": markdown().replace("\n", "\n# "),
    "data.json": json.dumps([[title, lines] for title, lines in paragraphs()], indent=2),
    "export.json": exported(),
    "notes.enex": evernote(),
    "words.ics": markdown().replace("\n", "\nNOTE:"),
    "words.bib": markdown(),
    "subtitles.srt": srt(),
    "windows.srt": srt("\r\n"),
    "captions.vtt": vtt(),
    "table.csv": "Number,Words\n" + "".join(f'{n},"{line}"\n' for n, line in rows()),
    "whisper.json": whisper(),
    "records.jsonl": records(),
    "lines.jsonl": "\n".join(json.dumps([title, *lines]) for title, lines in paragraphs()),
    "cells.ipynb": notebook(),
    "letter.eml": letter(),
    "archive.mbox": mailbox(),
    "page.mhtml": web_archive(),
}


def write_workbook(path):
    """A sheet for each word: a table, and remarks next to it that begin lower."""
    sheets = {}
    for word, lines in paragraphs():
        rows = [["Number", "Words", "Half", None, None], [0, lines[0], 0.5]]
        rows += [[at, line, at / 2, None, f"remark {at}"] for at, line in enumerate(lines[1:], 1)]
        sheets[f"On {word}'s"] = rows
    path.write_bytes(workbook(sheets))


def write_opendocument(path):
    blocks = "".join(
        f'<text:h text:outline-level="1">{title}</text:h><text:p/>'
        + "".join(f"<text:p>{line.replace('&', '&amp;')}</text:p>" for line in lines)
        for title, lines in paragraphs()
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        archive.writestr(
            "content.xml",
            '<office:document-content xmlns:office="urn:o" xmlns:text="urn:t"><office:body>'
            f"<office:text>{blocks}</office:text></office:body></office:document-content>",
        )


def write_flat(path):
    """Write OpenDocument or FictionBook as one file of XML."""
    blocks = "".join(
        f"<p>{line.replace('&', '&amp;')}</p>"
        for title, lines in paragraphs()
        for line in (title, *lines)
    )
    if path.suffix == ".fb2":
        book = "http://www.gribuser.ru/xml/fictionbook/2.0"
        text = f'<FictionBook xmlns="{book}"><body><section>{blocks}</section></body></FictionBook>'
    else:
        blocks = blocks.replace("p>", "text:p>")
        text = (
            '<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
            ' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body>'
            f"<office:text>{blocks}</office:text></office:body></office:document>"
        )
    path.write_text(text, encoding="utf-8")


def write_rich_text(path):
    lines = (line for title, lines in paragraphs() for line in (title, "", *lines))
    text = "\\par\n".join(lines).replace("ï", "\\'ef")
    path.write_text(f"{{\\rtf1\\ansi\\ansicpg1252 {text}\\par}}")


def write_message(path):
    body = "\n\n".join(line for title, lines in paragraphs() for line in (title, *lines))
    path.write_bytes(outlook_message(subject="Words", body=body))


WRITERS = {
    "budget.xlsx": write_workbook, "paper.odt": write_opendocument, "paper.fodt": write_flat,
    "book.fb2": write_flat, "paper.rtf": write_rich_text, "paper.pdf": write_pdf,
    "paper.docx": write_docx, "deck.pptx": write_pptx, "book.epub": write_epub,
    "offer.msg": write_message,
}  # fmt: skip
UNITS = dict(read_cases(__file__)["units"])
NAMES = (*TEXTS, "wide.txt", "wide.html", *WRITERS)
MAILS = ("letter.eml", "archive.mbox", "offer.msg")  # their lines are those that get shows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats")
    for name, text in TEXTS.items():
        (folder / name).write_bytes(text.encode())
    (folder / "wide.txt").write_bytes(markdown().encode("utf-16"))
    (folder / "wide.html").write_bytes(html().encode("utf-16"))
    for name, write in WRITERS.items():
        write(folder / name)
    return folder


@pytest.fixture(scope="module")
def engine(folder, tmp_path_factory):
    with LocalEngine(open_library(tmp_path_factory.mktemp("home"), snippet_chars=60)) as engine:
        failed = Indexer(engine.library).build(folder, "notes").failed
        assert [failure.path for failure in failed] == ["lines.jsonl", "records.jsonl:2"]
        yield engine


@cache
def hits_of(engine, word):
    """Search all files for a word, once."""
    asked = {"query": f'"{word}"', "mode": "lexical", "dataset": "notes", "top_k": 100}
    return engine.ask("search", asked)["results"]


def find(engine, name, word):
    """Return the passages of a file that hold the word, each with the file it came from."""
    return [
        hit
        for hit in hits_of(engine, word)
        if name in (hit["path"], hit["locator"]["file"]) and word in hit["text"].casefold()
    ]


def opened(engine, folder, name, hit, place):
    """Return what stands where a passage, or a part of it, is cited."""
    if name not in MAILS:
        return open_at(folder / name, place)
    shown = engine.ask("get", {"reference": f"{hit['path']}:1-9999", "dataset": "notes"})["text"]
    return "\n".join(shown.split("\n")[place["start"] - 1 : place["end"]])


def test_every_format_is_opened():
    extensions = {name.rpartition(".")[2] for name in NAMES}
    missing = [
        entry.name
        for entry in FORMATS
        if entry.extensions and extensions.isdisjoint(entry.extensions.split())
    ]
    assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_words_stand_where_the_citation_says(engine, folder, name):
    for word in WORDS:
        hits = find(engine, name, word)
        assert hits, word
        for hit in hits:
            assert hit["locator"]["unit"] == UNITS.get(name, "line")
            for place in (hit["locator"], hit["snippet_locator"]):
                if place is hit["snippet_locator"] and word not in hit["snippet"].casefold():
                    continue
                assert word in opened(engine, folder, name, hit, place).casefold(), place
                if name in MAILS:
                    continue
                if name in ("whisper.json", *WRITERS) or place["unit"] == "record":
                    assert place["line_start"] is None  # nobody could find that line
                elif place["unit"] == "time":  # and the lines of the file, which are there too
                    lines = re.split(r"\r\n|\r|\n", read_text(folder / name))
                    cited = lines[place["line_start"] - 1 : place["line_end"]]
                    assert word in " ".join(cited).casefold(), place


@pytest.mark.parametrize("name", NAMES)
def test_a_short_snippet_is_cited_closely(engine, folder, name):
    for word in WORDS:
        closest = min(
            len(opened(engine, folder, name, hit, hit["snippet_locator"]))
            for hit in find(engine, name, word)
        )
        assert closest < 900, word  # of 600 in a section


@pytest.mark.parametrize("name", NAMES)
def test_get_takes_the_reference_and_gives_the_same_numbers(engine, name):
    for word in WORDS[::3]:
        for path in {hit["path"] for hit in find(engine, name, word)}:
            asked = {"query": f'"{word}"', "docs": [path], "dataset": "notes", "top_k": 50}
            found = call_tool(engine, "search", asked).data["results"]
            assert found
            for passage in found:
                given = engine.ask("get", {"reference": passage["reference"], "dataset": "notes"})
                place = passage["locator"]
                if word in passage["text"].casefold():
                    assert word in given["text"].casefold(), passage["reference"]
                if (
                    place["unit"] == given["unit"]
                    and place["unit"] != "time"
                    and passage["is_whole"]
                ):
                    assert (given["start"], given["end"]) == (place["start"], place["end"])


@pytest.mark.slow
def test_every_passage_and_snippet_is_the_text_that_its_offsets_name(engine):
    for word in WORDS:
        for hit in hits_of(engine, word):
            document = find_document(engine.library.database, hit["source_doc_id"]).document
            assert document.text[hit["start_offset"] : hit["end_offset"]] == hit["text"], hit
            assert hit["snippet"].strip("… ") in document.text, hit


def test_moved_lines_are_cited_at_their_new_place_under_the_same_ids(tmp_path):
    page = tmp_path / "notes" / "page.html"
    page.parent.mkdir()
    page.write_text("<p>\nThe quarry stands here.")
    with LocalEngine(open_library(tmp_path / "home")) as engine:

        def cite():
            (hit,) = engine.ask("search", {"query": "quarry", "dataset": "notes"})["results"]
            return hit["locator"]["start"], hit["chunk_id"]

        indexer = Indexer(engine.library)
        indexer.build(page.parent, "notes")
        line, chunk_id = cite()
        page.write_text("<!-- new\n -->\n<p>\nThe quarry stands here.")
        assert indexer.build(page.parent, "notes").updated == 1
        assert (line, cite()) == (2, (4, chunk_id))


@table("reference, told")
def test_what_is_not_there_is_reported_in_the_same_unit(engine, reference, told):
    with pytest.raises(InputError) as error:
        engine.ask("get", {"reference": reference, "dataset": "notes"})
    assert told in str(error.value)


def test_a_whole_document_is_numbered_as_its_citations_are(engine, folder):
    given = engine.ask("get", {"reference": "page.html", "dataset": "notes"})
    lines = zip(given["numbers"], given["text"].split("\n"), strict=True)
    for number, line in lines:
        if line.strip():
            shown = open_at(folder / "page.html", {"unit": "line", "start": number, "end": number})
            assert line.split()[0] in shown
    printed = render("get", given, Form(numbers=True)).out.split("\n")
    assert f"{given['start']:6}  Quarry" in printed
