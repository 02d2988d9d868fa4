"""Recordings through a whole build: what is stored, and what an update notices."""

import pytest
from sqlalchemy import select

from catalog.core.documents import Cue
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.chunks import load_chunks
from catalog.store.schema import chunks
from fakes import open_library
from tables import read_cases

SUBTITLES = read_cases(__file__)["subtitles"]
FRAME = read_cases(__file__)["frame"]


@pytest.fixture
def talks(tmp_path):
    folder = tmp_path / "talks"
    (folder / "lecture_frames").mkdir(parents=True)
    (folder / "lecture.srt").write_text(SUBTITLES)
    (folder / "lecture_frames/frame_00m12s.md").write_text(FRAME)
    (folder / "lecture.mp4").write_bytes(b"\0\0\0\x20ftypisom\0\0")
    return folder


@pytest.fixture
def library(tmp_path):
    with open_library(tmp_path / "home", temporal_transcript_seconds=15.0) as opened:
        yield opened


def stored(library):
    with library.database.read() as connection:
        seqs = connection.scalars(select(chunks.c.seq).order_by(chunks.c.chunk_id))
        return list(load_chunks(connection, "talks", seqs).values())


def test_cues_and_speakers_are_stored_with_their_passage(library, talks):
    Indexer(library).build(talks, "talks")
    (spoken,) = [one for one in stored(library) if one.modality == "video_transcript"]
    assert spoken.text == "ANNA: We apply batch normalisation.\nBOB: To every layer?"
    assert spoken.cues == (Cue(0, 35, 10.0, 14.0, "ANNA"), Cue(36, 56, 14.0, 20.5, "BOB"))
    assert (spoken.locator.time_start, spoken.locator.time_end) == (10.0, 20.5)


def test_a_transcript_has_the_name_of_the_recording_next_to_it(library, talks):
    Indexer(library).build(talks, "talks")
    hits = SearchServiceV2(library).search("batch normalisation", dataset="talks")
    assert {hit.evidence.media for hit in hits} == {"lecture.mp4"}
    assert [line.kind for line in hits[0].evidence.lines] == ["Audio", "Screen", "Audio"]
    assert hits[0].evidence == hits[1].evidence
    assert [hit.evidence_at for hit in hits] == [1, 1]
    told = hits.to_dict()["results"]  # where it stands once
    assert [(one["evidence_at"], one["evidence"] is None) for one in told] == [
        (1, False),
        (1, True),
    ]


def test_a_change_of_the_times_alone_is_noticed(library, talks):
    Indexer(library).build(talks, "talks")
    later = SUBTITLES.replace("00:00:1", "00:01:1").replace("00:00:2", "00:01:2")
    (talks / "lecture.srt").write_text(later)
    report = Indexer(library).update("talks")
    assert (report.updated, report.embedded) == (1, 0)
    (spoken,) = [one for one in stored(library) if one.modality == "video_transcript"]
    assert spoken.locator.time_start == 70.0


def test_two_builds_give_the_same_chunks(tmp_path, library, talks):
    Indexer(library).build(talks, "talks")
    with open_library(tmp_path / "other") as other:
        Indexer(other).build(talks, "talks")
        assert [one.chunk_id for one in stored(other)] == [one.chunk_id for one in stored(library)]


def test_a_filter_on_the_recording_finds_all_its_files(library, talks):
    (talks / "other.srt").write_text(SUBTITLES)
    Indexer(library).build(talks, "talks")
    service = SearchServiceV2(library)
    found = service.search("batch", dataset="talks", filters={"media": "lecture"})
    assert {hit.path for hit in found} == {"lecture.srt", "lecture_frames/frame_00m12s.md"}


def test_hidden_folders_of_converters_are_indexed(library, talks):
    (talks / ".converted").mkdir()
    (talks / ".converted/talk.mp4.md").write_text("# Talk\n\n[00:05 - 00:09] A walrus swims.\n")
    (talks / ".other").mkdir()
    (talks / ".other/hidden.md").write_text("Hidden.")
    Indexer(library).build(talks, "talks")
    (hit,) = SearchServiceV2(library).search("walrus", dataset="talks", mode="lexical")
    assert (hit.path, hit.evidence.media) == (".converted/talk.mp4.md", "talk.mp4")
    assert (hit.locator.time_start, hit.locator.time_end) == (5.0, 9.0)
