"""The cap on one document's passages, where the search is confined to that document."""

from __future__ import annotations

import pytest

from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library, write

LONG = "\n\n".join(f"# Part {n}\n\n" + f"The walrus of part {n} swims. " * 12 for n in range(8))


@pytest.fixture
def service(tmp_path):
    write(tmp_path / "folder", long_dot_md=LONG, other_dot_md=LONG.replace("swims", "sleeps"))
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(tmp_path / "folder", "zoo")
        yield SearchServiceV2(library)


def paths(service, **asked):
    return [one.path for one in service.search("walrus", dataset="zoo", top_k=7, **asked)]


def test_answers_from_many_documents_hold_three_passages_of_each_at_most(service):
    assert sorted(paths(service)) == ["long.md"] * 3 + ["other.md"] * 3
    assert sorted(paths(service, doc_ids=["long.md", "other.md"])) == sorted(paths(service))


@pytest.mark.parametrize(
    "confined",
    [
        {"doc_ids": ["long.md"]},
        {"doc_ids": ["zoo:long.md"]},
        {"filters": {"path": "long.md"}},
        {"filters": {"path": "long.md", "file_type": "md"}},
        {"doc_ids": ["long.md", "other.md"], "filters": {"path": "long.md"}},
    ],
)
def test_an_answer_confined_to_one_document_is_filled_from_it(service, confined):
    found = paths(service, **confined)
    assert set(found) == {"long.md"}
    assert len(found) == 7


def test_an_answer_confined_to_one_recording_is_filled_from_it(service, tmp_path):
    spoken = "".join(f"[{n:02}:00 - {n:02}:59] The walrus of minute {n}.\n\n" for n in range(9))
    write(tmp_path / "folder", talk_dot_md=f"# Transcription\n\n{spoken}", talk_dot_mp4="")
    Indexer(service.library).build(tmp_path / "folder", "zoo")
    assert paths(service, filters={"media": "talk"}) == ["talk.md"] * 7


def test_best_chunk_mode_stays_when_confined_to_one_document(service):
    best = service.with_settings({"max_chunks_per_doc": 1})
    assert paths(best, doc_ids=["long.md"]) == ["long.md"]
