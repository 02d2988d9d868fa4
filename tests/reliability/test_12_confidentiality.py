"""A document that states a confidentiality, in whatever form, is never seen without it."""

import json
from itertools import product

import pytest

from answers.conftest import serve
from catalog.core.params import SearchParams
from catalog.library.indexing import Indexer
from fakes import open_library
from hostile.archives import packed, paragraph, word_parts

CANARY = "walrus"
LEVEL = "confidentiality"
BLOCKS = {  # front matter between two lines ---
    "plain": f"{LEVEL}: secret",
    "capitals": f"{LEVEL.upper()}: secret",
    "quoted": f'"{LEVEL}": secret',
    "escaped": f'"{LEVEL.replace("d", chr(92) + "x64")}": secret',
    "indented": f"  {LEVEL}: secret",
    "flow mapping": f"{{{LEVEL}: secret}}",
    "flow mapping with others": f"{{title: x, {LEVEL}: secret}}",
    "set": f"{{{LEVEL}}}",
    "explicit key": f"? {LEVEL}\n: secret",
    "merge key": f"<<: {{{LEVEL}: secret}}",
    "merge key later": f"title: x\n<<: {{{LEVEL}: secret}}",
    "merge key and own": f"<<: {{{LEVEL}: secret}}\n{LEVEL}: public",
    "tag": f"!!map\n{LEVEL}: secret",
    "tagged key": f"!!str {LEVEL}: secret",
    "binary key": "!!binary Y29uZmlkZW50aWFsaXR5: secret",
    "list of mappings": f"- {LEVEL}: secret",
    "nested": f"metadata:\n  {LEVEL}: secret",
    "nested in a list": f"metadata:\n- title: x\n- {LEVEL}: secret",
    "nested in itself": f"{LEVEL}:\n  level: secret",
    "twice": f"{LEVEL}: secret\n{LEVEL}: public",
    "twice in a flow mapping": f"{{{LEVEL}: secret, {LEVEL}: public}}",
    "twice in other letters": f"{LEVEL}: secret\n{LEVEL.title()}: public",
    "tabs": f"title: x\n\t{LEVEL}: secret",
    "broken": f"title: [x\n{LEVEL}: secret",
    "anchor": f"a: &a x\n{LEVEL}: *a",
    "anchored key": f"a: &a {LEVEL}\n*a : secret",
    "bomb": "a: &a [x, x]\n" + "b: &b [*a, *a]\n" * 50 + f"{LEVEL}: secret",
    "deep": f"a: {'[' * 40}{']' * 40}\n{LEVEL}: secret",
    "empty": f"{LEVEL}:",
    "true": f"{LEVEL}: true",
    "comment first": f"# note\n{LEVEL}: secret",
    "ligature": f"{LEVEL.replace('fi', chr(0xFB01))}: secret",
    "directive inside": f"%YAML 1.2\n{LEVEL}: secret",
    "a ligature": f"{LEVEL.replace('fi', chr(0xFB01))}: secret",
    "a name that begins so": f"{LEVEL}_class: secret",
    "a level": f"title: x\n{LEVEL.title()} Level: secret",
    "a dotted name": f"document.{LEVEL}: secret",
    "a part of itself": f"{LEVEL}.level: secret",
    "far down": "x: y\n" * 14_000 + f"{LEVEL}: secret",
    "far down in a comment's shade": "# x\n" * 20_000 + f"{LEVEL}: secret",
}
HEADS = {  # at the top of a file, before a blank line
    "above": f"# a comment\n---\n{LEVEL}: secret\n---",
    "below a directive": f"%YAML 1.2\n---\n{LEVEL}: secret\n---",
    "a directive between lines": f"---\n%YAML 1.2\n---\n{LEVEL}: secret\n---",
    "below a block of directives": f"---\n%YAML 1.2\n---\n\n---\n{LEVEL}: secret\n---",
    "below a block of comments": f"---\n# x\n---\n\n---\n{LEVEL}: secret\n---",
    "below an HTML comment": f"<!-- a\nb -->\n---\n{LEVEL}: secret\n---",
    "below blank lines": f"\n \n---\n{{{LEVEL}: secret}}\n---",
    "not closed": f"---\ntitle: x\n\n{LEVEL}: secret",
    "TOML": f"+++\n{LEVEL} = 'secret'\n+++",
    "TOML, nested": f"+++\n[meta]\n{LEVEL} = 'secret'\n+++",
    "TOML, twice": f"+++\n{LEVEL} = 'secret'\n{LEVEL} = 'public'\n+++",
    "TOML, not closed": f"+++\n{LEVEL} = 'secret'",
    "JSON": json.dumps({"title": "x", LEVEL: "secret"}),
    "JSON in lines": json.dumps({"title": "x", LEVEL: "secret"}, indent=1),
    "marked as JSON": f';;;\n{{"{LEVEL}": "secret"}}\n;;;',
    "marked with a language": f"---yaml\n{LEVEL}: secret\n---",
    "Org": f"#+TITLE: x\n#+{LEVEL.upper()}: secret",
    "AsciiDoc": f"= Title\n:{LEVEL}: secret",
    "MultiMarkdown": "Title: x\nConfidentiality: secret",
    "bold": "**Confidentiality:** secret",
    "HTML comment": f"<!--\n{LEVEL}: secret\n-->",
}
RECORDS = {
    "in metadata": {"metadata": {LEVEL: "secret"}},
    "at the top": {LEVEL: "secret"},
    "at the top in capitals": {LEVEL.upper(): "secret"},
    "at the top of a public one": {LEVEL: "secret", "metadata": {LEVEL: "public"}},
    "metadata is a list": {"metadata": [{LEVEL: "secret"}]},
    "metadata is text": {"metadata": json.dumps({LEVEL: "secret"})},
    "nested": {"metadata": {"meta": {LEVEL: "secret"}}},
    "no plain value": {"metadata": {LEVEL: {"level": "secret"}}},
    "nested at the top": {"properties": {LEVEL: "secret"}},
    "nested in a list": {"fields": [{"x": {LEVEL: "secret"}}]},
    "metadata in capitals": {"METADATA": {LEVEL: "secret"}},
    "a ligature": {"metadata": {LEVEL.replace("fi", chr(0xFB01)): "secret"}},
    "a level": {f"{LEVEL}_level": "secret"},
    "a level in metadata": {"metadata": {f"{LEVEL}_level": "secret"}},
}
SAYS = f'"{LEVEL}": "secret"'
LATER = {  # below front matter
    "first paragraph": f"{LEVEL.title()}: secret",
    "second block": f"---\n{LEVEL}: secret\n---",
    "third block": f"---\nx: y\n---\n\n---\n{LEVEL}: secret\n---",
    "nested in the second block": f"---\nx:\n  {LEVEL}: secret\n---",
    "second block in TOML": f"+++\n{LEVEL} = 'secret'\n+++",
    "broken second block": f"---\nx: [\n{LEVEL}: secret\n---",
    "paragraph below a second block": f"---\nx: y\n---\n\n**{LEVEL}**: secret",
}
BEFORE = {  # content below front matter that says a confidentiality
    "srt": f"1\n00:00:01,000 --> 00:00:03,000\n{CANARY}\n",
    "vtt": f"WEBVTT\n\n00:00:01.000 --> 00:00:03.000\n{CANARY}\n",
    "sbv": f"0:00:01.000,0:00:03.000\n{CANARY}\n",
    "tsv": f"start\tend\ttext\n0\t1000\t{CANARY}\n",
    "csv": f"a,b\n1,{CANARY}\n",
    "html": f"<html><body><p>{CANARY}</p></body></html>",
    "xhtml": f"<p>{CANARY}</p>",
    "tex": CANARY,
    "py": f"# {CANARY}\n",
    "xml": f"<p>{CANARY}</p>\n",
    "log": CANARY,
    "adoc": CANARY,
    "json": f'{{"x": "{CANARY}"}}',
    "jsonl": json.dumps({"_id": "below front matter", "text": CANARY}),
}
TWICE = {  # of two equal names a parser takes the last
    "fields": f'"metadata": {{{SAYS}, "{LEVEL}": "public"}}',
    "fields at the top": f'{SAYS}, "{LEVEL}": "public"',
    "metadata": f'"metadata": {{{SAYS}}}, "metadata": {{}}',
    "metadata that is text": f'"metadata": {{"x": {{{SAYS}}}}}, "metadata": "x"',
    "nested": f'"metadata": {{"meta": {{{SAYS}}}, "meta": {{}}}}',
}
JSON_FILES = {  # with FIELDS beside what makes a document
    "jsonl": '{"_id": "NAME", "text": "CANARY", FIELDS}\n',
    "json": '{"segments": [{"text": "CANARY", "start": 1, "end": 2}], FIELDS}',
    "ipynb": '{"nbformat": 4, "cells": [{"cell_type": "raw", "source": "CANARY"}], FIELDS}',
}
OTHERS = {
    "transcript.json": json.dumps(
        {LEVEL: "secret", "segments": [{"text": CANARY, "start": 1, "end": 2}]}
    ),
    "cue.json": json.dumps([{"text": CANARY, "start": 1, "end": 2, LEVEL: "secret"}]),
    "cell.ipynb": json.dumps(
        {
            "nbformat": 4,
            "cells": [{"cell_type": "raw", "metadata": {LEVEL: "secret"}, "source": CANARY}],
        }
    ),
    "list.ipynb": json.dumps(
        {
            "nbformat": 4,
            "metadata": [{LEVEL: "secret"}],
            "cells": [{"cell_type": "raw", "source": CANARY}],
        }
    ),
    "front.ipynb": json.dumps(
        {
            "nbformat": 4,
            "cells": [
                {"cell_type": "raw", "source": f"---\n{LEVEL}: secret\n---"},
                {"cell_type": "markdown", "source": CANARY},
            ],
        }
    ),
    "front.jsonl": json.dumps({"_id": "front", "text": f"---\n{LEVEL}: secret\n---\n{CANARY}"}),
    "alone.jsonl": f'{{"{LEVEL}": "secret"}}\n{{"_id": "below", "text": "{CANARY}"}}\n',
    "noscript.html": f'<noscript><meta name="{LEVEL}" content="secret"></noscript><p>{CANARY}',
    "template.html": f'<template><meta name="{LEVEL}" content="secret"></template><p>{CANARY}',
    "level.html": f'<meta name="{LEVEL}-level" content="secret"><p>{CANARY}',
    "page.html": f'<meta name="{LEVEL}" content="secret"><p>{CANARY}',
    "field.rst": f":{LEVEL.title()}: secret\n\n{CANARY}\n",
    "lines.rst": f"---\n{LEVEL}: secret\n---\n\n{CANARY}\n",
    "book.ipynb": json.dumps(
        {
            "nbformat": 4,
            "metadata": {LEVEL: "secret"},
            "cells": [{"cell_type": "markdown", "metadata": {}, "source": CANARY}],
        }
    ),
    "converted.md": f"# Talk\n\n---\nsource_file: talk.mp4\n{LEVEL}: secret\n---\n\n{CANARY}\n",
    "report.docx": packed(
        {
            **word_parts(paragraph(f"A {CANARY}.")),
            "docProps/custom.xml": (
                '<Properties xmlns="http://schemas.openxmlformats.org/officeDocument/2006/'
                'custom-properties"><property name="Confidentiality"><value>secret</value>'
                "</property></Properties>"
            ),
        }
    ),
    "header.vtt": f"WEBVTT\n{LEVEL}: secret\n\n00:01.000 --> 00:02.000\n{CANARY}\n",
    "note.vtt": f"WEBVTT\n\nNOTE\n{LEVEL}: secret\n\n00:01.000 --> 00:02.000\n{CANARY}\n",
    "below.vtt": f"WEBVTT\n\n---\n{LEVEL}: secret\n---\n\n00:01.000 --> 00:02.000\n{CANARY}\n",
    "both.md": (
        f"---\n{LEVEL}: public\n---\n# Talk\n\n"
        f"*source_file: talk.mp4*\n*{LEVEL}: secret*\n\n{CANARY}\n"
    ),
    "twice.md": (
        f"# Talk\n\n*source_file: talk.mp4*\n*{LEVEL}: public*\n*{LEVEL}: secret*\n\n{CANARY}\n"
    ),
}


def texts():
    for (name, block), ending, mark, breaks in product(
        BLOCKS.items(), ("md", "txt"), ("", "\ufeff"), ("\n", "\r\n")
    ):
        text = f"{mark}---\n{block}\n---\n\nA {CANARY}.\n".replace("\n", breaks)
        yield f"{name} {bool(mark)} {len(breaks)}.{ending}", text
    for (name, head), ending, breaks in product(HEADS.items(), ("md", "txt"), ("\n", "\r\n", "\r")):
        text = f"{head}\n\nA {CANARY}.\n".replace("\n", breaks)
        yield f"{name} {breaks.encode().hex()}.{ending}", text
    for (name, later), ending, breaks in product(LATER.items(), ("md", "txt"), ("\n", "\r\n")):
        text = f"---\ntitle: x\n---\n{later}\n\nA {CANARY}.\n".replace("\n", breaks)
        yield f"{name} {len(breaks)}.{ending}", text
    for (ending, content), (name, block) in product(BEFORE.items(), BLOCKS.items()):
        yield f"before {name}.{ending}", f"---\n{block}\n---\n{content}"
        yield f"below a line {name}.{ending}", f"\n---\n{block}\n---\n\n{content}"
    yield (
        "before both.html",
        (f'---\n{LEVEL}: public\n---\n<meta name="{LEVEL}" content="secret"><p>{CANARY}'),
    )
    told = {f"twice {name}": fields for name, fields in TWICE.items()}
    told |= {name: json.dumps(fields)[1:-1] for name, fields in RECORDS.items()}
    for (name, fields), (ending, form) in product(told.items(), JSON_FILES.items()):
        text = form.replace("NAME", name).replace("CANARY", CANARY).replace("FIELDS", fields)
        yield f"{name}.{ending}", text
    yield from OTHERS.items()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """The files that a role finds which may see public, internal and unlabelled documents."""
    folder = tmp_path_factory.mktemp("levels")
    (folder / "notes").mkdir()
    (folder / "notes" / "open.md").write_text(f"A {CANARY} that all may see.\n")
    for name, text in texts():
        (folder / "notes" / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with open_library(folder / "home") as library:
        Indexer(library).build(folder / "notes", "notes")
    service = serve(folder / "home")
    params = SearchParams(CANARY, mode="lexical", top_k=100, role="employee")
    yield {result.path for result in service.run(params)}
    service.close()


@pytest.mark.slow
def test_no_document_that_states_a_confidentiality_is_seen_without_it(seen):
    assert seen == {"open.md"}


@pytest.mark.parametrize(
    "text",
    [
        f"---\n\nThe word {LEVEL} in prose.\n\n---\n\n",
        f"---\n# 5 {LEVEL}: obligations\n\nProse.\n\n---\n\n",
        f"# {LEVEL}: a guide\n\n",
        f"---\ntitle: On {LEVEL}\nsummary: |\n  {LEVEL}: what it is\n---\n\n",
        f"---\ntitle: x\n---\nProse.\n\n{LEVEL}: after the first paragraph\n\n",
        f"---\ntitle: x\n---\n# {LEVEL}: a guide\n\n",
        f"---\ntitle: x\n---\n---\nauthor: y\n---\n\nThe word {LEVEL}: in prose.\n\n",
        f"---\n{LEVEL}: public\n---\n{LEVEL.title()}: public\n\n",
        f"A text.\n\n{LEVEL}: later on.\n\n",
        "{% raw %}\n\n",
        f"Of integrity, {LEVEL}: and availability.\n\n",
    ],
)
def test_prose_about_confidentiality_is_read(tmp_path, text):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text(f"{text}A {CANARY}.\n")
    with open_library(tmp_path / "home") as library:
        assert Indexer(library).build(tmp_path / "notes", "notes").failed == ()
    service = serve(tmp_path / "home")
    assert list(service.run(SearchParams(CANARY, mode="lexical", role="employee")))
    service.close()
