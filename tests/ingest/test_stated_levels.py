"""A level that a document states is its level in every form, or ``unreadable``."""

import io

import pytest

from catalog.ingest.readers.base import DEFAULT_LIMITS
from catalog.ingest.readers.registry import read_open

MAIL = b"X-Confidentiality: secret\nFrom: a@b.c\nSubject: Rope\nMessage-ID: <1@x>\n\nA rope.\n"
CUE = b"\n00:01.000 --> 00:02.000\nA rope.\n"
FRONT = b"""---
title: Plan
abstract: We show that ropes
hold.

More.

confidentiality: secret
---
# T
"""
RECORDS = b'[{"title":"a","text":"A rope","author":"x"},{"title":"b","text":"A wherry"}]'
PDF = b"""%%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]/Contents 4 0 R
/Resources<</Font<</F1 6 0 R>>>>>>endobj
4 0 obj<</Length 41>>stream
BT /F1 20 Tf 50 200 Td (The rope) Tj ET
endstream endobj
5 0 obj<</%s (secret)>>endobj
6 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Root 1 0 R/Info 5 0 R>>
"""


def levels(path, data):
    documents = list(read_open(io.BytesIO(data), path, limits=DEFAULT_LIMITS))[1:]
    return [one.metadata.get("confidentiality") for one in documents if hasattr(one, "metadata")]


@pytest.mark.parametrize(
    ("path", "data", "level"),
    [
        ("a.eml", MAIL, "secret"),
        ("a.eml", b"\xef\xbb\xbf" + MAIL, "secret"),
        ("a.eml", b"\r\n\n" + MAIL, "secret"),
        ("a.eml", MAIL.decode().encode("utf-16"), "secret"),
        ("a.vtt", b"WEBVTT\n\nNOTE confidentiality: secret\n" + CUE, "unreadable"),
        ("a.vtt", b"WEBVTT - x confidentiality: secret\n" + CUE, "unreadable"),
        ("a.vtt", b"WEBVTT\n\nSTYLE\n::cue {}\n\nNOTE\nconfidentiality: a\n" + CUE, "unreadable"),
        ("a.vtt", b"WEBVTT\n" + CUE, None),
        ("a.md", FRONT, "unreadable"),
        ("a.md", b"---\ntitle: x\n---\nA rope.\n\nconfidentiality: a word\n---\n", None),
        ("a.pdf", PDF % b"Confidentiality#20Level", "unreadable"),
        ("a.pdf", PDF % b"Document#20Confidentiality", "unreadable"),
        ("a.pdf", PDF % b"Subject", None),
    ],
)
def test_a_level_counts_however_the_file_begins(path, data, level):
    assert levels(path, data) == [level]


def test_the_level_of_an_export_is_that_of_each_record():
    assert (
        levels("a.json", b'{"confidentiality": "secret", "items": %s}' % RECORDS) == ["secret"] * 2
    )
    assert (
        levels("a.json", b'{"confidentiality": {"a": 1}, "items": %s}' % RECORDS)
        == ["unreadable"] * 2
    )
    assert levels("a.json", RECORDS) == [None, None]
