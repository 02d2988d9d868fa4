"""Whatever place a hit shows, `get` and `multi_get` take it, and give the words that were found."""

import re

import pytest

from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.terminal import Form, render
from catalog.interfaces.tools import call_tool
from catalog.library.indexing import Indexer
from catalog.retrieval.citations import format_shown_place
from fakes import open_library
from reliability.test_14_cited_places import TEXTS, UNITS, WORDS, WRITERS

pytestmark = pytest.mark.slow
SAID = (
    "1\n00:01:05,000 --> 00:01:18,000\nThe quarry is near.\n\n"
    "2\n00:09:00,000 --> 00:09:09,000\nBye.\n"
)
SLIDE = "# Frame at 01:12\n\nA walnut on a slide.\n"
FOLDERS = {
    "a lecture": {
        "talks/a lecture.srt": SAID,
        "talks/a lecture_frames/frame_01m12s.md": SLIDE,
        "talks/a lecture.mp4": "\0\0\0\x20ftypisom\0\0",
    },
    "on the web": {
        "talk.md": "---\nvideo: https://youtu.be/abc?list=3\nsource_url: https://youtu.be/abc?list=3\n"
        "---\n# Talk\n\n## Transcript\n\n[00:00:05] Near the quarry.\n\n[01:01:05] A walnut.\n"
    },
    "converted": {
        ".converted/scan.md": "# Scan [1]\n\n" + 20 * "Filler.\n" + "A quarry.\n\nA walnut.\n",
        "scan.pdf": "%PDF-1.4",
    },
    "sections": {
        "odd, name.md": "# One\n\nThe quarry.\n\n# Two, three\n\n## Four\n\nThe walnut.\n"
    },
}
NAMES = (*TEXTS, *WRITERS, *FOLDERS)
SHOWN = {
    "cells.ipynb": (
        r"cells? \d+(-\d+|, lines? \d+(-\d+)?)?\]",
        r" cells? \d+(-\d+|, lines? \d+(-\d+)?)?$",
    ),
    "paper.pdf": (r"page \d \(pages \d-\d\)\]|page \d\]", r"\.pdf pages? \d(-\d)?$"),
    "deck.pptx": (r"slide \d+\]", r"\.pptx slide \d+$"),
    "paper.docx": (r"\w+, paragraphs \d+-\d+\]", r"\.docx paragraphs? \d+(-\d+)?$"),
    "paper.odt": (r"\w+, paragraphs \d+-\d+\]", r"\.odt paragraphs? \d+(-\d+)?$"),
    "paper.fodt": (r"paragraphs \d+-\d+\]", r"\.fodt paragraphs? \d+(-\d+)?$"),
    "book.fb2": (r"paragraphs \d+-\d+\]", r"\.fb2 paragraphs? \d+(-\d+)?$"),
    "paper.rtf": (r"paragraphs \d+-\d+\]", r"\.rtf paragraphs? \d+(-\d+)?$"),
    "page.mhtml": (r"\w+, paragraphs \d+-\d+\]", r"\.mhtml paragraphs? \d+(-\d+)?$"),
    "budget.xlsx": (r"budget › 'On \w+''s'!.*\d\]", r"\.xlsx › 'On \w+''s'!.*\d$"),
    "book.epub": (r"\w+, paragraphs \d+-\d+\]", r"\.epub paragraphs? \d+(-\d+)?$"),
    "records.jsonl": (r"record \d+ of records\.jsonl\]", r" record \d+ of records\.jsonl$"),
    "export.json": (r"record \d+ of export\.json\]", r" record \d+ of export\.json$"),
    "notes.enex": (r"record \d+ of notes\.enex\]", r" record \d+ of notes\.enex$"),
    "a lecture": (r"t=1:(05|12)\]", None),
    "on the web": (r"t=(0:05|1:01:05)\]", None),
}
"""How a citation and a header of the format end; of a recording none has a header."""
RECORDS = ("records.jsonl", "export.json", "notes.enex")  # each is a document
LINES = (r"lines? \d+(-\d+)?\]", r":\d+(-\d+)?$")
SETTINGS = {"snippet_chars": 60, "max_chunks_per_doc": 50}
TIMED = (r"t=\d+:\d\d\]", None)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Each format is a dataset of its own, so that every title is that of one document."""
    folder = tmp_path_factory.mktemp("formats")
    with LocalEngine(open_library(tmp_path_factory.mktemp("home"), **SETTINGS)) as engine:
        for number, name in enumerate(NAMES):
            root = folder / str(number)
            for path, text in FOLDERS.get(name, {name: TEXTS.get(name, "")}).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(text.encode())
            if name in WRITERS:
                WRITERS[name](root / name)
            Indexer(engine.library).build(root, f"d{number}")
        yield engine


def shown(engine, name, word):
    """Yield every hit with the forms in which its place is shown."""
    dataset = f"d{NAMES.index(name)}"
    asked = {"query": f'"{word}"', "dataset": dataset, "top_k": 50}
    passages = call_tool(engine, "search", asked).data["results"]
    result = engine.service.search(f'"{word}"', mode="lexical", dataset=dataset, top_k=50)
    for hit, passage in zip(result.results, passages, strict=True):
        if word not in hit.text.casefold():
            continue
        forms = {"citation": hit.citation, "reference": passage["reference"]}
        if hit.link is not None:
            forms["link"] = hit.link
        if word in hit.snippet.casefold():
            forms["header"] = format_shown_place(hit)
            if hit.evidence is None:
                assert forms["header"].strip("@ ") in render("search", result, Form()).out
        yield hit, forms


@pytest.mark.parametrize("name", NAMES)
def test_every_place_that_a_hit_shows_opens_there(engine, name):
    dataset = f"d{NAMES.index(name)}"
    citation, header = SHOWN.get(name, TIMED if UNITS.get(name) == "time" else LINES)
    for word in {"walnut"} & {*WORDS}:
        hits = list(shown(engine, name, word))
        assert hits, word
        for hit, forms in hits:
            assert re.search(f"({citation})$", forms["citation"]), forms
            assert ("link" in forms) == (hit.moment is not None or hit.path.endswith(".pdf"))
            if header is not None and "header" in forms:
                assert re.search(header, forms["header"].strip("@ ")), forms
            for form, place in forms.items():
                given = engine.ask("get", {"reference": place, "dataset": dataset})
                assert word in given["text"].casefold(), place
                assert not [note for note in given["notes"] if "cannot be read" in note], place
                several = engine.ask("multi_get", {"patterns": [place], "dataset": dataset})
                texts = [one["text"].strip() for one in several["documents"]]
                assert "\n\n".join(texts) == given["text"].strip(), place
                if form == "header":
                    bare = engine.ask("get", {"reference": f"{dataset}:{place.strip('@ ')}"})
                    assert bare["text"] == given["text"]


def test_a_place_is_less_than_its_document(engine):
    for name in NAMES[: -len(FOLDERS)]:
        for hit, forms in shown(engine, name, "lantern"):
            dataset = hit.dataset
            whole = engine.ask("get", {"reference": hit.path, "dataset": dataset})["text"]
            for place in forms.values():
                given = engine.ask("get", {"reference": place, "dataset": dataset})["text"]
                assert name in RECORDS or len(given) < len(whole), place
