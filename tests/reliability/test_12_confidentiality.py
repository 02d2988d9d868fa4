"""A document that states a confidentiality, in whatever form, is never seen without it."""

import json
import re
import tomllib
from itertools import product
from pathlib import Path

import pytest

from answers.conftest import serve
from catalog.core.params import SearchParams
from catalog.library.indexing import Indexer
from fakes import open_library
from hostile.archives import packed, paragraph, word_parts

CANARY = "walrus"
LEVEL = "confidentiality"
MANY = re.compile(r"\{(.{1,16}?)\*(\d+)\}", re.DOTALL)
TOLD = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
TABLES = {
    name: {key: MANY.sub(lambda it: it[1] * int(it[2]), value) if isinstance(value, str) else value
           for key, value in table.items()}
    for name, table in tomllib.loads(TOLD).items()
}  # fmt: skip
BLOCKS, HEADS, RECORDS, LATER, BEFORE, TWICE, JSON_FILES, OTHERS, PROSE = TABLES.values()
PROPERTIES = (
    '<Properties xmlns="http://schemas.openxmlformats.org/officeDocument/2006/custom-properties">'
    '<property name="Confidentiality"><value>secret</value></property></Properties>'
)
WORD = {**word_parts(paragraph(f"A {CANARY}.")), "docProps/custom.xml": PROPERTIES}


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
    yield "report.docx", packed(WORD)


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


@pytest.mark.parametrize("text", PROSE["texts"])
def test_prose_about_confidentiality_is_read(tmp_path, text):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text(f"{text}A {CANARY}.\n")
    with open_library(tmp_path / "home") as library:
        assert Indexer(library).build(tmp_path / "notes", "notes").failed == ()
    service = serve(tmp_path / "home")
    assert list(service.run(SearchParams(CANARY, mode="lexical", role="employee")))
    service.close()
