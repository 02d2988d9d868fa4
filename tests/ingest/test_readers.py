"""Each case of ``cases/*.toml``: a file, and what reading it gives; cases/README.md explains it."""

import io
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from catalog.core.documents import ParsedDocument
from catalog.core.errors import EmptyDocumentError, ReadError
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadFailure
from catalog.ingest.readers.registry import read_open
from ingest.made_files import MAKERS

Case = dict[str, Any]
MANY = re.compile(r"\{([^{}]+)\*(\d+)\}")
"""``{ab*3}`` in a case stands for ``ababab``."""
FILES = sorted(Path(__file__).with_name("cases").glob("*.toml"))
GIVEN = {  # the file; what comes after ``has`` is for its maker
    "path", "input", "encoding", "within", "limits", "documents", "remarks", "error", "empty",
    "has", "made", "parts", "files", "links", "spine", "hrefs", "properties", "guide", "container",
    "declared", "package", "metadata_of_book", "kind", "styles", "meta", "sheets", "hidden",
    "pages_drawn", "info", "attached",
}  # fmt: skip


def cases_of(file: Path) -> Iterator[Any]:
    """Yield the cases of a file; what it says above the first one holds for all."""
    told = tomllib.loads(file.read_text(encoding="utf-8"))
    for_all = {name: it for name, it in told.items() if not isinstance(it, dict | list)}
    for sentence, it in told.items():
        if sentence not in for_all:
            rows = list(rows_of(it)) if isinstance(it, dict) else it
            for number, row in enumerate(rows, 1):
                name = f"{file.stem}: {sentence}" + (f" ({number})" if len(rows) > 1 else "")
                yield pytest.param(filled({**for_all, **row}), id=name)


def filled(case: Case) -> Case:
    """Replace ``{NAME}`` by the text of that name everywhere in the case."""
    constants = {f"{{{name}}}": text for name, text in case.items() if name.isupper()}

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: fill(it) for name, it in value.items()}
        if isinstance(value, list):
            return list(map(fill, value))
        for name, text in constants.items() if isinstance(value, str) else ():
            value = value.replace(name, fill(text) if name in value else "")
        return value

    return {name: fill(it) for name, it in case.items() if not name.isupper()}


def rows_of(case: Case) -> Iterator[Case]:
    """Yield the case, or one for each of its ``cases`` or rows, with what they share."""
    shared = {name: it for name, it in case.items() if name not in ("columns", "rows", "cases")}
    for one in case.get("cases", []):
        yield {**shared, **one}
    for row in case.get("rows", [] if "cases" in case else [[]]):
        cells = [row] if len(case.get("columns", [])) == 1 else row
        yield {**shared, **dict(zip(case.get("columns", []), cells, strict=False))}


def expanded(value: Any) -> Any:
    if isinstance(value, str):
        return MANY.sub(lambda found: found[1] * int(found[2]), value)
    if isinstance(value, dict):
        return {name: expanded(it) for name, it in value.items()}
    return list(map(expanded, value)) if isinstance(value, list) else value


def content_of(case: Case) -> str:
    content = str(case.get("input", ""))
    content = case["within"].replace("{}", content) if "within" in case else content
    return expanded(content)


def read(case: Case) -> list[ParsedDocument | ReadFailure]:
    content, limits = content_of(case), replace(DEFAULT_LIMITS, **case.get("limits", {}))
    if case.get("made"):
        data = MAKERS[case["made"]](content, case)
    else:
        data = content.encode(case.get("encoding", "utf-8"))
    _, *items = read_open(io.BytesIO(data), case["path"], limits=limits)
    return items


@pytest.mark.parametrize("case", [case for file in FILES for case in cases_of(file)])
def test_a_file_is_read_as_its_case_says(case: Case) -> None:
    case = expanded(case)
    assert case.keys() <= {*GIVEN, *SEEN}
    if "error" in case or "empty" in case:
        with pytest.raises(ReadError) as refused:
            read(case)
        assert case.get("error", case.get("empty")) in str(refused.value)
        assert isinstance(refused.value, EmptyDocumentError) == ("empty" in case)
        return
    items = read(case)
    documents = [item for item in items if isinstance(item, ParsedDocument)]
    told = [
        item.reason if item.path == case["path"] else f"{item.path}: {item.reason}"
        for item in items
        if isinstance(item, ReadFailure)
    ]
    remarks = case.get("remarks", [])
    assert len(told) == len(remarks), told
    for words, reason in zip(remarks, told, strict=True):
        assert all(part in reason for part in words.split(": ", 1)), reason
    expected = case.get(
        "documents", [{it: case[it] for it in case if it == "has" or (it in SEEN and it != "path")}]
    )
    assert len(documents) == len(expected)
    for document, fields in zip(documents, expected, strict=True):
        assert fields or remarks
        seen = {name: SEEN[name](document) for name in fields if name != "has"}
        if "as_written" in fields:
            seen["as_written"] = document.text == content_of(case)
        assert seen == {name: it for name, it in fields.items() if name != "has"}
        has = fields.get("has", {})
        assert {name: plain(document.metadata.get(name, "")) for name in has} == has


def lines_of_words(document: ParsedDocument) -> dict[str, int | None]:
    text = document.text
    return {word: document.places.number_at(text.index(word)) for word in text.split()}


def plain(value: Any) -> Any:
    return list(map(plain, value)) if isinstance(value, tuple | list) else value


def cues(document: ParsedDocument) -> list[list[object]]:
    """Return text and seconds of each timed part, and its speaker if it has one."""
    found = []
    for one in document.segments:
        told = [one.time_start, one.time_end, one.speaker]
        said = document.text[one.start : one.end]
        found.append([said, *(it for it in told if it is not None)])
    return found


def placed(document: ParsedDocument, *, cells: bool = False) -> list[list[object]]:
    """Return the first number of each line and how it begins; or its cells, and all of it."""
    found, at, places = [], 0, document.places
    for line in document.text.split("\n"):
        numbers = places.numbers_of(at, at + max(1, len(line)))
        if line.strip() and cells:
            found.append([places.cells_of(at, at + len(line)), line])
        elif line.strip() and numbers:
            found.append([numbers[0], line[:30]])
        at += len(line) + 1
    return found


def pages(document: ParsedDocument) -> list[str]:
    return [
        document.text[start:end].strip()
        for start, end in pairwise([*document.pages, len(document.text)])
    ]


SEEN = {
    "as_written": lambda it: True,
    "path": lambda it: it.path,
    "text": lambda it: it.text,
    "after_head": lambda it: it.text.partition("\n\n")[2],
    "lines": lambda it: [line for line in it.text.split("\n") if line],
    "body": lambda it: it.text[it.body_start :],
    "body_start": lambda it: it.body_start,
    "title": lambda it: it.title,
    "file_type": lambda it: it.file_type,
    "source_type": lambda it: it.source_type,
    "metadata": lambda it: {name: plain(value) for name, value in it.metadata.items()},
    "level": lambda it: it.metadata.get("confidentiality", ""),
    "written": lambda it: sorted(it.written),
    "unread": lambda it: list(it.remarks),
    "headings": lambda it: [f"{'#' * one.level} {one.title}" for one in it.headings],
    "heading_lines": lambda it: [it.text[one.start : one.end] for one in it.headings],
    "whole": lambda it: [it.text[start:end] for start, end in it.atomic],
    "tables": lambda it: [table.columns for table in it.tables],
    "pages": pages,
    "lines_of_words": lines_of_words,
    "cues": cues,
    "segments": lambda it: len(it.segments),
    "seconds": lambda it: [one.time_start for one in it.segments],
    "speakers": lambda it: [one.speaker or "" for one in it.segments],
    "parts_of": lambda it: [[one.modality, it.text[one.start : one.end]] for one in it.segments],
    "modality": lambda it: " ".join(sorted({one.modality for one in it.segments})),
    "unit": lambda it: it.places.unit,
    "places": placed,
    "cells": lambda it: placed(it, cells=True),
}
