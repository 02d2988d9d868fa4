"""Notebooks, pages and records made to harm, read in their process; see cases/hostile.toml, too."""

import json

import pytest

from hostile import texts
from hostile.reading import document


def test_text_that_no_store_holds_is_replaced_wherever_it_stands(tmp_path):
    odd = "a\ud800\0b"
    cells = [texts.prose(f"# {odd}"), texts.printing(odd)]
    book = texts.notebook(cells, metadata={"title": odd, "authors": [{"name": odd}], "tags": [odd]})
    document(tmp_path, "a.ipynb", book)
    cue = {"text": odd, "start": 1, "end": 2, "speaker": odd}
    fields = {"title": odd, "channel": odd, "file": f"{odd}.mp4", "language": odd}
    document(tmp_path, "a.json", json.dumps({"segments": [cue], **fields}).encode())
    record = {"_id": odd, "title": odd, "text": odd, "metadata": {odd: [odd, {odd: odd}]}}
    document(tmp_path, "a.jsonl", json.dumps(record).encode())
    document(tmp_path, "a.html", b"<title>&#xd800;&#0;</title><h1>&#55296;x</h1><p>&#0;y</p>")


@pytest.mark.slow
def test_a_page_nested_deeply_is_read(tmp_path):
    page = texts.nested("<div>", "</div>", 100_000, "deep").encode()
    assert document(tmp_path, "a.html", page).text == "deep"
