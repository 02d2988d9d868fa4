"""The cap on one document's passages, whichever files tell of it, and where it is lifted."""

from __future__ import annotations

import pytest

from catalog.library.browse import DocumentCatalog
from catalog.library.health import dataset_stats, describe_store
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


def test_recordings_of_one_name_in_two_datasets_keep_their_caps(service, tmp_path):
    spoken = "".join(f"[{n:02}:00 - {n:02}:59] The walrus of minute {n}.\n\n" for n in range(9))
    write(tmp_path / "talks", talk_dot_md=f"# Transcription\n\n{spoken}", talk_dot_mp4="")
    for name in ("one", "two"):
        Indexer(service.library).build(tmp_path / "talks", name)
    both = service.search("walrus", dataset=["one", "two"], filters={"path": "talk.mp4"}, top_k=9)
    assert sorted(one.source_doc_id for one in both) == 3 * ["one:talk.md"] + 3 * ["two:talk.md"]


def test_best_chunk_mode_stays_when_confined_to_one_document(service):
    best = service.with_settings({"max_chunks_per_doc": 1})
    assert paths(best, doc_ids=["long.md"]) == ["long.md"]


SAID = "".join(
    f"{n + 1}\n00:{5 * n:02}:00,000 --> 00:{5 * n:02}:30,000\nThe walrus of minute {n} speaks.\n\n"
    for n in range(4)
)


@pytest.fixture
def lecture(tmp_path):
    """A lecture that five files tell of, and two other documents."""
    folder = tmp_path / "lectures"
    shown = {
        f"talk_frames__frame_{n:02}m10s_dot_md": f"# Frame at {n:02}:10\n\nWalrus slide {n}.\n"
        for n in range(0, 20, 5)
    }
    write(folder, talk_dot_srt=SAID, talk_dot_mp4="\0\0", **shown)
    write(folder, talk_dot_de_dot_srt=SAID.replace("speaks", "spricht"))
    write(folder, a_dot_md="# A\n\nA walrus.\n", b_dot_md="# B\n\nThe other walrus.\n")
    with open_library(tmp_path / "lecture-home", transcript_window_seconds=20) as library:
        Indexer(library).build(folder, "zoo")
        yield SearchServiceV2(library)


def test_all_files_of_a_recording_share_one_cap(lecture):
    hits = lecture.search("walrus", dataset="zoo", top_k=20)
    assert sorted(hit.original or hit.path for hit in hits) == ["a.md", "b.md"] + 3 * ["talk.mp4"]


@pytest.mark.parametrize(
    ("file", "text"),
    [("records_dot_jsonl", '{"_id": "talk", "text": "The walrus."}\n'), ("talk", "The walrus.\n")],
)
def test_what_is_called_like_a_recording_is_a_document_of_its_own(tmp_path, file, text):
    folder = tmp_path / "lectures"
    write(folder, talk_dot_srt=SAID, talk_dot_mp4="\0\0", **{file: text})
    with open_library(tmp_path / "lecture-home", transcript_window_seconds=20) as library:
        Indexer(library).build(folder, "zoo")
        hits = SearchServiceV2(library).search("walrus", dataset="zoo", top_k=20)
        assert sorted(hit.original or hit.path for hit in hits) == ["talk"] + 3 * ["talk.mp4"]
        assert DocumentCatalog(library).query(dataset="zoo").total == 2
        assert dataset_stats(library, "zoo").documents == 2


def test_a_recording_is_one_document_in_listings_and_counts(lecture):
    library = lecture.library
    for asked in ({}, {"query": "walrus"}, {"name": "talk"}):
        page = DocumentCatalog(library).query(dataset="zoo", **asked)
        (entry,) = [entry for entry in page.entries if entry.path == "talk.mp4"]
        assert (entry.source_doc_id, entry.file_type) == ("zoo:talk.mp4", "video")
        assert (page.total, len(page.entries)) == (sum(page.types.values()),) * 2
        assert page.total == (1 if "name" in asked else 3)
    assert entry.chunks == dataset_stats(library, "zoo").chunks - 2
    assert dataset_stats(library, "zoo").documents == 3
    assert describe_store(library)["datasets"][0]["documents"] == 3
    assert Indexer(library).update("zoo").documents == 3


def test_a_listing_pages_through_recordings_as_through_documents(lecture):
    pages = [
        DocumentCatalog(lecture.library).query(dataset="zoo", limit=1, offset=offset)
        for offset in range(4)
    ]
    assert [[entry.path for entry in page.entries] for page in pages] == [
        ["a.md"], ["b.md"], ["talk.mp4"], [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["talk.mp4", "talk.srt", "talk.de.srt", "talk_frames/frame_05m10s.md", "talk"]
)
def test_a_filter_on_any_name_of_a_recording_keeps_all_its_files(lecture, name):
    for narrowed in ({"docs": [name]}, {"filters": {"path": name}}):
        hits = lecture.search("walrus", dataset="zoo", top_k=20, **narrowed)
        assert {hit.modality for hit in hits} == {"video_transcript", "video_frame"}
        assert len(hits) > 3


def test_the_router_chooses_a_recording_whole(lecture):
    routed = lecture.with_settings({"router_enabled": True, "router_documents": 1})
    hits = routed.search("walrus minute speaks", dataset="zoo", top_k=2)
    assert {hit.original for hit in hits} == {"talk.mp4"}
    (within,) = [stage for stage in hits.stages if stage.name == "route"]
    assert within.note.startswith("1 document chosen")
