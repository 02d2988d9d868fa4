"""What a file is, told by its content before its name."""

from __future__ import annotations

import pytest

from catalog.core.errors import ReadError
from catalog.ingest.readers.registry import sniff

SRT = b"1\n00:00:01,000 --> 00:00:02,000\nHello.\n"


@pytest.mark.parametrize(
    ("path", "head", "expected"),
    [
        ("a.pdf", b"%PDF-1.7\n", ("pdf", None)),
        ("a.txt", b"%PDF-1.7\n", ("pdf", "pdf")),
        ("a", b"\xef\xbb\xbf%PDF-1.7\n", ("pdf", "pdf")),
        ("a.pdf", b"junk before it\n%PDF-1.7\n", ("pdf", None)),
        ("spec.txt", b"A PDF begins with %PDF-1.7\n", ("plain", None)),
        ("a.pdf", b"in fact only text", ("plain", "txt")),
        ("a.pdf", b"<!DOCTYPE html><p>login first</p>", ("html", "html")),
        ("a.docx", b"PK\x03\x04", ("archive", None)),
        ("a.md", b"PK\x03\x04", ("archive", None)),
        ("a.docx", b"<html><body>saved as Word</body></html>", ("html", "html")),
        ("a.txt", b'<?xml version="1.0"?>\n<html xmlns="x">', ("html", "html")),
        ("a.txt", b"\xef\xbb\xbf<!doctype html><p>x</p>", ("html", "html")),
        ("a.txt", b"<!-- saved from -- here -->\n<html>", ("html", "html")),
        ("a.txt", b"<!-- <html> -->\nnothing more", ("plain", None)),
        ("a.txt", b"<htmlish> is no tag", ("plain", None)),
        ("a.md", b"<html>\n# Markdown may begin so", ("markdown", None)),
        ("a.srt", b"anything", ("subtitles", None)),
        ("a.txt", SRT, ("subtitles", None)),
        ("a", b"WEBVTT\n\n00:01.000 --> 00:02.000\nHello.", ("subtitles", None)),
        ("a.py", SRT, ("code", None)),
        ("a.json", b"{}", ("json", None)),
        ("a.ipynb", b"{}", ("notebook", None)),
        ("a.rst", b"x", ("rst", None)),
        ("a.unheard-of", b"x", ("plain", None)),
        ("", b"", ("plain", None)),
    ],
)
def test_content_decides_and_then_the_name(path, head, expected):
    assert sniff(path, head, head) == expected


def test_a_notebook_under_another_name_is_told_by_its_end():
    assert sniff("a.json", b'{"cells": [', b'"nbformat": 4}') == ("notebook", "ipynb")
    assert sniff("a.py", b'{"cells": [', b'"nbformat": 4}') == ("code", None)


@pytest.mark.parametrize(
    ("path", "program"),
    [
        ("prices.xlsx", "with a password: save it without one"),
        ("letter.doc", r"save it as \.docx"),
    ],
)
def test_a_file_of_an_old_container_is_named_by_its_own_program(path, program):
    with pytest.raises(ReadError, match=program):
        sniff(path, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"")


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"%!PS-Adobe-3.0", "PostScript"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
            "old Word or PowerPoint file",
        ),
        (b"\x00\x00\x00\x20ftypisom", "its transcript can be indexed"),
        (b"\x89PNG\r\n\x1a\n", r"binary \(png\)"),
        (b"\x00\x01\x02", r"binary \(data\)"),
    ],
)
@pytest.mark.parametrize("path", ["a.txt", "a.pdf", "a.docx", "a"])
def test_a_format_without_a_reader_is_refused_with_what_to_do(path, head, reason):
    with pytest.raises(ReadError, match=reason):
        sniff(path, head, head)
