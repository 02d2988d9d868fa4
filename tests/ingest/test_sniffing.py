"""What a file is, told by its content before its name."""

from __future__ import annotations

import pytest

from catalog.core.errors import ReadError
from catalog.ingest.readers.opening import Kind, sniff

SRT = b"1\n00:00:01,000 --> 00:00:02,000\nHello.\n"


@pytest.mark.parametrize(
    ("path", "head", "kind"),
    [
        ("a.pdf", b"%PDF-1.7\n", Kind("pdf")),
        ("a.txt", b"%PDF-1.7\n", Kind("pdf", "pdf")),
        ("a", b"\xef\xbb\xbf%PDF-1.7\n", Kind("pdf", "pdf")),
        ("a.pdf", b"junk before it\n%PDF-1.7\n", Kind("pdf")),
        ("spec.txt", b"A PDF begins with %PDF-1.7\n", Kind("plain")),
        ("a.pdf", b"in fact only text", Kind("plain", "txt")),
        ("a.pdf", b"<!DOCTYPE html><p>login first</p>", Kind("html", "html")),
        ("a.docx", b"PK\x03\x04", Kind("archive")),
        ("a.md", b"PK\x03\x04", Kind("archive")),
        ("a.docx", b"<html><body>saved as Word</body></html>", Kind("html", "html")),
        ("a.txt", b'<?xml version="1.0"?>\n<html xmlns="x">', Kind("html", "html")),
        ("a.txt", b"\xef\xbb\xbf<!doctype html><p>x</p>", Kind("html", "html")),
        ("a.txt", b"<!-- saved from -- here -->\n<html>", Kind("html", "html")),
        ("a.txt", b"<!-- <html> -->\nnothing more", Kind("plain")),
        ("a.txt", b"<htmlish> is no tag", Kind("plain")),
        ("a.md", b"<html>\n# Markdown may begin so", Kind("markdown")),
        ("a.srt", b"anything", Kind("subtitles")),
        ("a.txt", SRT, Kind("subtitles")),
        ("a", b"WEBVTT\n\n00:01.000 --> 00:02.000\nHello.", Kind("subtitles")),
        ("a.py", SRT, Kind("code")),
        ("a.json", b"{}", Kind("json")),
        ("a.ipynb", b"{}", Kind("notebook")),
        ("a.rst", b"x", Kind("rst")),
        ("a.unheard-of", b"x", Kind("plain")),
        ("", b"", Kind("plain")),
    ],
)
def test_content_decides_and_then_the_name(path, head, kind):
    assert sniff(path, head, head) == kind


def test_a_notebook_under_another_name_is_told_by_its_end():
    assert sniff("a.json", b'{"cells": [', b'"nbformat": 4}') == Kind("notebook", "ipynb")
    assert sniff("a.py", b'{"cells": [', b'"nbformat": 4}') == Kind("code")


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"{\\rtf1\\ansi", "rich text"),
        (b"%!PS-Adobe-3.0", "PostScript"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Office file, or one with a password"),
        (b"\x00\x00\x00\x20ftypisom", "its transcript can be indexed"),
        (b"\x89PNG\r\n\x1a\n", r"binary \(png\)"),
        (b"\x00\x01\x02", r"binary \(data\)"),
    ],
)
@pytest.mark.parametrize("path", ["a.txt", "a.pdf", "a.docx", "a"])
def test_what_nothing_reads_is_refused_with_what_to_do(path, head, reason):
    with pytest.raises(ReadError, match=reason):
        sniff(path, head, head)
