"""Temporal expansion: windows, neighbours, their order, their limits, and how it is told."""

import shutil
from dataclasses import dataclass, replace

import pytest
from llama_index.core.schema import MetadataMode, NodeWithScore
from sqlalchemy import Connection

from catalog.core import ids
from catalog.core.documents import Chunk, ChunkSpan, Cue, Locator, ParsedDocument
from catalog.core.errors import StageFailedError, StoreError
from catalog.core.scope import Scope
from catalog.retrieval.recordings import (
    TimeWindow,
    build_evidence_lines,
    drop_repeated,
    format_evidence,
    format_line,
    merge_windows,
    seconds_around,
    short_frame_text,
)
from catalog.search_v2 import CatalogRetriever, QueryEngineBuilderV2
from catalog.search_v2.nodes import PassageNode
from catalog.search_v2.postprocessors import TemporalExpansion
from catalog.search_v2.service import SearchServiceV2
from catalog.store import manifest
from catalog.store.chunks import load_chunks
from catalog.store.publish import NewChunk, NewRevision, content_hash, ensure_dataset, publish_all
from catalog.store.recordings import (
    find_media_end,
    find_media_file,
    load_chunks_between,
    recording_name,
)
from catalog.store.restriction import Restriction
from fakes import open_library
from made_results import stored as passage
from tables import read_cases, table

NOW = 1_700_000_000.0
TALK = Restriction("vault")


@dataclass(frozen=True)
class Piece:
    """One passage: cues of (start, end, speaker, text), or a text with times."""

    start: float | None
    end: float | None
    text: str = ""
    cues: tuple[tuple[float, float, str | None, str], ...] = ()
    modality: str = "video_transcript"


def said(*cues):
    return Piece(cues[0][0], max(cue[1] for cue in cues), cues=cues)


def frame(start, text, end=None):
    return Piece(start, start if end is None else end, text, modality="video_frame")


def test_the_nearest_of_very_many_passages_at_a_moment_are_loaded(opened):
    database = opened().database
    moments = [said((50, 60 + at, None, f"Words {at}.")) for at in range(300)]
    put(database, "crowd.srt", *moments)
    with database.read() as connection:
        anchor = load_chunks(connection, "vault", [150])[150]
        found = load_chunks_between(connection, TALK, anchor, 40, 70)
        assert len(found) == 200
        assert {one.seq for one in found} > set(range(60, 240))
        assert found == sorted(found, key=lambda one: one.seq)


def put(database, path, *pieces, title="Lecture", **metadata):
    """Publish a document of these passages in the dataset ``vault``."""
    text, spans = "", []
    for piece in pieces:
        begin, cues = len(text), []
        text += piece.text
        for start, end, speaker, words in piece.cues:
            at = len(text) - begin
            text += words
            cues.append(Cue(at, at + len(words), start, end, speaker))
            text += "\n"
        line = text[:begin].count("\n") + 1
        where = Locator(
            line_start=line,
            line_end=line + max(0, len(cues) - 1),
            time_start=piece.start,
            time_end=piece.end,
        )
        spans.append(ChunkSpan(begin, len(text), (), piece.modality, where, cues=tuple(cues)))
        text += "\n"
    document = ParsedDocument(path, text, title, "video", metadata=metadata)
    digest = content_hash(document)
    revision = ids.revision_id(ids.source_doc_id("vault", path), digest)
    cut = [NewChunk(ids.chunk_id(revision, one.modality, one.start), one, ()) for one in spans]
    with database.write() as connection:
        ensure_dataset(connection, "vault", NOW)
        publish_all(connection, [NewRevision("vault", path, document, digest, tuple(cut))], NOW)


def stored(database, path):
    """The passages of a document, as they are stored."""
    with database.read() as connection:
        found = load_chunks(connection, "vault", range(1, 200)).values()
        return [chunk for chunk in found if chunk.path == path]


TRANSCRIPT = (
    said((0, 10, "Anna", "Welcome to the lecture."), (10, 30, "Anna", "Today we train nets.")),
    said((30, 45, "Anna", "They are hard to train."), (45, 60, "Bob", "Why is that?")),
    said(
        (65, 78, "Anna", "Anna: We then apply batch normalisation..."),
        (78, 90, "Anna", "It scales \n every layer."),
    ),
    said((92, 104, "Anna", "Questions now."), (106, 120, "Anna", "Goodbye.")),
)
FRAMES = (
    frame(12, "## Frame at 00:00:12\n\nSlide: Training"),
    frame(72, '## Frame at 00:01:12\n\nSlide: "BatchNorm"\nformula'),
    frame(110, "## Frame at 00:01:50\n\nThank you"),
)
AROUND = read_cases(__file__)["around"]


@pytest.fixture(scope="module")
def lecture(tmp_path_factory):
    """The home of a store of one lecture, transcript and frames apart."""
    home = tmp_path_factory.mktemp("lecture") / "home"
    with open_library(home) as library:
        put(library.database, "talks/lecture.srt", *TRANSCRIPT, media="talks/lecture")
        put(library.database, "talks/frames.md", *FRAMES, media="talks/lecture")
    return home


@pytest.fixture
def opened(tmp_path, lecture):
    """Opens a library with the lecture under any settings."""
    libraries, home = [], shutil.copytree(lecture, tmp_path / "home", dirs_exist_ok=True)

    def make(**rag):
        libraries.append(open_library(home, **rag))
        return libraries[-1]

    yield make
    for library in libraries:
        library.close()


def ask(library, query="apply normalisation", **more):
    call = {"dataset": "vault", "mode": "lexical", "top_k": 1}
    return SearchServiceV2(library).search(query, **{**call, **more})


def stage(answer, name="temporal"):
    return next(one for one in answer.stages if one.name == name)


def lines(result):
    """The lines of the evidence, without the mark of best sentences."""
    return [format_line(line) for line in result.evidence.lines]


def chunk(start, end, *, modality="video_transcript", text="words", seq=1, **more):
    fields = {
        "dataset": "vault",
        "source_doc_id": "vault:a.srt",
        "path": "a.srt",
        "start_offset": 1000 * seq,
        "end_offset": 1000 * seq + len(text),
        "locator": Locator(time_start=start, time_end=end),
    }
    return passage(text, f"c{seq}", seq=seq, modality=modality, **{**fields, **more})


@table("start, end, modality, media_end, expected")
def test_a_window_is_the_passage_and_some_seconds_within_the_recording(
    start, end, modality, media_end, expected
):
    one = chunk(start, None if end == "" else end, modality=modality)
    sizes = {"transcript_seconds": 15.0, "frame_seconds": 10.0}
    assert seconds_around(one, **sizes, media_end=media_end) == expected


def test_windows_that_overlap_or_touch_become_one_and_others_do_not():
    given = [
        TimeWindow(50, 105), TimeWindow(0, 20), TimeWindow(105, 130), TimeWindow(20.5, 30),
        TimeWindow(60, 70),
    ]  # fmt: skip
    assert merge_windows(given) == [
        (TimeWindow(0, 20), [1]),
        (TimeWindow(20.5, 30), [3]),
        (TimeWindow(50, 130), [0, 4, 2]),
    ]
    assert merge_windows([]) == []


def test_what_was_said_and_shown_around_a_passage_comes_in_the_order_of_time(opened):
    (hit,) = ask(opened())
    evidence = hit.evidence
    assert lines(hit) == AROUND
    assert hit.link == "talks/lecture.srt#t=65"
    assert hit.snippet_locator.time_end == 90.0
    told = hit.model_dump(mode="json")["evidence"]["lines"][2]
    assert told.pop("chunk_id") == evidence.lines[2].chunk_id
    assert told == {
        "time_start": 72.0, "time_end": 72.0, "kind": "Screen", "speaker": None,
        "text": 'Slide: "BatchNorm" formula', "is_best": False,
    }  # fmt: skip
    assert (evidence.start, evidence.end) == (50.0, 105.0)
    assert evidence.anchors == (hit.chunk_id,)
    assert evidence.dataset == "vault"
    assert {line.chunk_id for line in evidence.lines if "(Screen)" in format_line(line)} != {
        hit.chunk_id
    }


def test_the_windows_are_ten_seconds_around_a_frame_and_are_settings(opened):
    (hit,) = ask(opened(), "formula")
    # 72 ± 10: the cues of 65-78 and 78-90 reach into it, the one of 45-60 does not
    assert (hit.modality, lines(hit)) == ("video_frame", AROUND[1:4])
    assert hit.link == "talks/frames.md#t=72"
    narrow = opened(temporal_transcript_seconds=0.0, temporal_frame_seconds=30.0)
    assert lines(ask(narrow)[0]) == AROUND[1:4]
    assert lines(ask(narrow, "formula")[0]) == [
        '00:00:30–00:00:45 (Audio, Anna): "They are hard to train."',
        *AROUND,
    ]


def test_a_window_ends_with_the_recording_or_its_told_duration(opened):
    library = opened()
    (hit,) = ask(library, "goodbye")
    assert (hit.evidence.start, hit.evidence.end) == (77.0, 120.0)
    put(library.database, "long.srt", said((5, 9, None, "Yodel.")), duration=20)
    (hit,) = ask(library, "yodel")
    assert (hit.evidence.start, hit.evidence.end) == (0.0, 20.0)


def test_hits_near_one_another_share_one_bundle_and_others_have_their_own(opened):
    found = ask(opened(), "normalisation formula welcome", top_k=5)
    by_text = {hit.text.split()[-1]: hit for hit in found}
    near, shown = by_text["layer."], by_text["formula"]
    assert near.evidence == shown.evidence
    assert near.evidence.anchors == (near.chunk_id, shown.chunk_id)
    # 65-90 ± 15 is 50 to 105, 72 ± 10 is within it; 0-30 ± 15 ends at 45
    assert (near.evidence.start, near.evidence.end) == (50.0, 105.0)
    assert (by_text["nets."].evidence.start, by_text["nets."].evidence.end) == (0.0, 45.0)
    assert stage(ask(opened(), "normalisation formula welcome", top_k=5)).note == (
        "3 hits in 2 bundles"
    )


def test_ranks_and_scores_are_what_they_are_without_it(opened):
    with_it = ask(opened(), "train normalisation formula", top_k=5)
    without = ask(opened(temporal_enabled=False), "train normalisation formula", top_k=5)
    assert [(hit.chunk_id, hit.score) for hit in with_it] == [
        (hit.chunk_id, hit.score) for hit in without
    ]
    assert all(hit.evidence is None for hit in without)
    assert "temporal" not in {one.name for one in without.stages}


def test_two_recordings_with_the_same_times_are_not_mixed(opened):
    library = opened()
    put(library.database, "talks/other.srt", said((66, 80, None, "Penguins.")), media="talks/other")
    put(library.database, "alone.srt", said((66, 80, None, "Walruses.")))
    put(library.database, "single.srt", said((66, 80, None, "Seals.")))
    assert lines(ask(library)[0]) == AROUND
    alone = ask(library, "penguins")
    assert lines(alone[0]) == ['00:01:06–00:01:20 (Audio): "Penguins."']
    assert stage(alone).note == "1 hit in 1 bundle"
    assert lines(ask(library, "walruses")[0]) == ['00:01:06–00:01:20 (Audio): "Walruses."']
    found = ask(library, "penguins walruses seals", top_k=5)
    assert stage(found).note == "3 hits in 3 bundles"


@pytest.mark.parametrize(
    ("narrowed", "told"),
    [
        ({"doc_ids": ["talks/lecture.srt"]}, [*AROUND[:2], *AROUND[3:]]),
        ({"filters": "modality=video_transcript"}, [*AROUND[:2], *AROUND[3:]]),
        ({"filters": "path=talks/lecture.srt"}, AROUND),  # a name of the whole recording
        ({"query": "apply normalisation -questions"}, AROUND[:4]),
        ({"query": "lex: apply normalisation -formula"}, [*AROUND[:2], *AROUND[3:]]),
    ],
)
def test_passages_out_of_scope_are_not_evidence_either(opened, narrowed, told):
    (hit,) = ask(opened(), **narrowed)
    assert lines(hit) == told


def test_a_restriction_given_to_the_postprocessor_holds(opened):
    library = opened()
    anchor = stored(library.database, "talks/lecture.srt")[2]
    nodes = [NodeWithScore(node=PassageNode.of(anchor), score=0.5)]
    within = replace(TALK, scope=Scope.of(["vault:talks/frames.md"]))
    told = TemporalExpansion(library.database, within).postprocess_nodes(nodes)
    assert told[0].node.metadata["evidence"].split("\n") == AROUND[1:4]
    unknown = TemporalExpansion(library.database).postprocess_nodes(nodes)
    # without a restriction there is no neighbour
    assert unknown[0].node.metadata["evidence"].split("\n") == [AROUND[1], AROUND[3]]
    assert "evidence" not in nodes[0].node.metadata
    assert told[0].score == 0.5


def test_a_language_model_reads_the_evidence_and_an_embedding_model_does_not(opened):
    service = SearchServiceV2(opened())
    (node,) = service.retrieve("apply normalisation", dataset="vault", mode="lexical", top_k=1)
    assert node.evidence is not None
    assert node.node.metadata["evidence"].replace("> ", "") == "\n".join(AROUND)
    assert AROUND[2] in node.node.get_content(metadata_mode=MetadataMode.LLM)
    assert AROUND[2] not in node.node.get_content(metadata_mode=MetadataMode.EMBED)
    assert node.node.text == node.node.chunk.text
    asked = {"mode": "lexical", "top_k": 1, "doc_ids": ["talks/lecture.srt"]}
    engine = QueryEngineBuilderV2(service).build_query_engine("vault", **asked)
    (source,) = engine.query("apply normalisation -goodbye").source_nodes
    assert source.node.metadata["evidence"].startswith(AROUND[0])
    assert "Slide" not in source.node.metadata["evidence"]
    assert "Questions" not in source.node.metadata["evidence"], "its passage says goodbye"


def test_an_anchor_without_an_end_or_after_its_end_is_still_told(opened):
    library = opened()
    odd = Piece(400.0, None, "An endless yodel.")
    put(library.database, "odd.srt", odd, Piece(500.0, 490.0, "A reversed warble."))
    assert lines(ask(library, "yodel")[0]) == ['00:06:40 (Audio): "An endless yodel."']
    assert lines(ask(library, "warble")[0]) == ['00:08:20 (Audio): "A reversed warble."']
    put(library.database, "lost.srt", Piece(None, None, "A timeless chirp."))
    found = ask(library, "chirp")
    assert (stage(found).status, stage(found).note) == ("skipped", "no timed passage")
    assert found.to_dict()["results"][0]["evidence"] is None


def test_a_passage_without_cues_is_one_line_of_its_own_times(opened):
    library = opened()
    put(library.database, "plain.srt", Piece(10, 20, "First\nline."), Piece(20, 30, "A yodel."))
    assert lines(ask(library, "yodel")[0]) == [
        '00:00:10–00:00:20 (Audio): "First line."',
        '00:00:20–00:00:30 (Audio): "A yodel."',
    ]


def test_a_failure_is_a_failed_stage_and_the_answer_stands(opened, monkeypatch):
    def broken(*_arguments):
        raise StoreError("no more disk")

    library = opened()
    monkeypatch.setattr("catalog.retrieval.recordings.load_chunks_between", broken)
    found = ask(library)
    assert (stage(found).status, stage(found).note) == ("failed", "StoreError: no more disk")
    assert found[0].evidence is None
    assert found[0].link == "talks/lecture.srt#t=65"
    service = SearchServiceV2(library)
    ours = CatalogRetriever("vault", service=service, mode="lexical", whole=False)
    nodes = ours.retrieve("normalisation")
    assert TemporalExpansion(library.database).postprocess_nodes(nodes) == nodes
    with pytest.raises(StageFailedError, match="temporal"):
        ask(library, strict=True)


def name_of(connection: Connection, chunk: Chunk) -> str:
    return recording_name(find_media_file(connection, chunk), chunk)


def test_a_recording_is_called_as_told_else_as_listed_else_as_its_document(opened):
    library = opened()
    database = library.database
    anchor = stored(database, "talks/lecture.srt")[0]
    with database.read() as connection:
        assert name_of(connection, anchor) == "Lecture"
        told = replace(anchor, metadata={"media_file": "talks/own name.mov"})
        assert name_of(connection, told) == "own name.mov"
        assert name_of(connection, replace(anchor, title="")) == "lecture.srt"
    listed = ("talks/lecture.mp3", "talks/lecture.MP4", "talks/lecture.srt", "talks/lecture/a.mov")
    with database.write() as connection:
        for file in listed:
            entry = manifest.ManifestEntry(file, 1, 1, "p", "failed", "binary", NOW)
            manifest.record(connection, "vault", entry)
    with database.read() as connection:
        assert name_of(connection, anchor) == "lecture.MP4"
        heard = replace(anchor, modality="audio_transcript", metadata={})
        assert name_of(connection, heard) == "lecture.mp3"
        assert name_of(connection, replace(anchor, path="talks/lect", metadata={})) == "Lecture"
    (hit,) = ask(library)
    assert (hit.evidence.media, hit.link) == ("lecture.MP4", "talks/lecture.MP4#t=65")


def test_an_address_of_the_recording_is_what_is_linked(opened):
    library = opened()
    about = {"source_url": "https://youtu.be/x?si=1", "media_file": "yodel.mp4"}
    cues = ((10, 20, None, "Nothing to see."), (21, 30, None, "Then a yodel."))
    put(library.database, "yodel.srt", said(*cues), **about)
    (hit,) = ask(library, "yodel")
    assert hit.evidence.link == "https://youtu.be/x?si=1&t=10"
    put(library.database, "yodel.srt", said(*cues), **{**about, "source_url": "javascript:x"})
    assert ask(library, "yodel")[0].evidence.link == "yodel.mp4#t=10"


def test_the_last_second_is_that_of_all_passages_of_the_recording(opened):
    database = opened().database
    put(database, "talks/late.md", frame(300, "Late"), media="talks/lecture")
    with database.read() as connection:
        anchor = stored(database, "talks/lecture.srt")[0]
        assert find_media_end(connection, anchor) == 300.0
        assert find_media_end(connection, replace(anchor, metadata={})) == 120.0
        longer = replace(anchor, metadata={**anchor.metadata, "duration": 301.5})
        assert find_media_end(connection, longer) == 301.5
        assert find_media_end(connection, replace(anchor, metadata={"duration": "long"})) == 120.0
        nowhere = replace(anchor, source_doc_id="vault:gone", metadata={})
        assert find_media_end(connection, nowhere) == 0.0


def test_passages_between_two_seconds_are_those_that_reach_into_them(opened):
    database = opened().database
    anchor = stored(database, "talks/lecture.srt")[2]

    def between(start, end, restriction=TALK):
        with database.read() as connection:
            found = load_chunks_between(connection, restriction, anchor, start, end)
        return [(one.locator.time_start, one.modality) for one in found]

    spoken = "video_transcript"
    assert between(60, 72) == [(30.0, spoken), (65.0, spoken), (72.0, "video_frame")]
    assert between(60.5, 64.5) == []
    assert between(0, 12, replace(TALK, scope=Scope.of(()))) == []
    assert between(0, 12, Restriction("another")) == []
    put(database, "talks/tie.md", frame(65, "A frame as the cue begins"), media="talks/lecture")
    assert between(61, 70) == [(65.0, spoken), (65.0, "video_frame")]


def cues(text, *times):
    """Cues of equal numbers of characters."""
    size = len(text) // len(times)
    return tuple(
        Cue(n * size, n * size + size, start, end, speaker)
        for n, (start, end, speaker) in enumerate(times)
    )


def test_cues_of_one_speaker_are_one_line_until_another_speaks_or_something_is_shown():
    text = "a b c d e f "
    times = [(0, 1, "A"), (1, 2, "A"), (2, 3, None), (3, 4, "A"), (4, 5, "A"), (5, 6, "A")]
    spoken = chunk(0.0, 6.0, text=text, cues=cues(text, *times))
    shown = chunk(4.0, 4.5, text="shown", modality="video_frame", seq=2)
    after = chunk(6.0, 7.0, text="g", seq=3, cues=(Cue(0, 1, 6, 7, "A"),))
    told = build_evidence_lines([spoken], [shown, after], TimeWindow(0, 7), max_chars=100)
    assert [(one.time_start, one.time_end, one.speaker, one.text) for one in told] == [
        (0, 2, "A", "a b"),
        (2, 3, None, "c"),
        (3, 5, "A", "d e"),  # the cue that begins as the frame comes stands before it
        (4, 4.5, None, "shown"),
        (5, 6, "A", "f"),
        (6, 7, "A", "g"),
    ]


def test_cues_are_joined_up_to_fifteen_seconds_and_the_best_sentence_stays_one_line():
    text = "a b c d e f g h i j "
    spoken = chunk(
        0.0, 60.0, text=text, cues=cues(text, *((6 * n, 6 * n + 6, None) for n in range(10)))
    )

    def told(best):
        found = build_evidence_lines([spoken], [], TimeWindow(0, 60), max_chars=100, best=best)
        return [(line.time_start, line.time_end, line.text) for line in found]

    pairs = [(0, 12, "a b"), (12, 24, "c d"), (24, 36, "e f"), (36, 48, "g h"), (48, 60, "i j")]
    assert told({}) == pairs
    best = {spoken.chunk_id: (4, 12)}  # c to f
    assert told(best) == [pairs[0], (12, 36, "c d e f"), *pairs[3:]]
    long = chunk(0.0, 50.0, text="a b ", cues=cues("a b ", (0, 30, None), (30, 50, None)))
    found = build_evidence_lines([long], [], TimeWindow(0, 50), max_chars=100)
    assert [line.text for line in found] == ["a", "b"]
    named = chunk(0.0, 1.0, text="hello", cues=(Cue(0, 5, 0, 1, "A\n00:09:09 B"),))
    (line,) = build_evidence_lines([named], [], TimeWindow(0, 1), max_chars=100)
    assert format_line(line) == '00:00:00–00:00:01 (Audio, A 00:09:09 B): "hello"'  # forges none


def test_further_lines_are_taken_from_the_nearest_on_and_the_anchor_is_always_whole():
    anchor = chunk(100.0, 110.0, text="x" * 50)
    far, near, after = (
        chunk(start, start + 5, text=letter * 10, seq=seq)
        for seq, (start, letter) in enumerate([(80.0, "f"), (90.0, "n"), (112.0, "a")], start=2)
    )

    def told(max_chars):
        lines = build_evidence_lines(
            [anchor], [far, near, after], TimeWindow(0, 200), max_chars=max_chars
        )
        return "".join(line.text[0] for line in lines)

    # seconds to the anchor: after 2, near 5, far 15
    assert told(80) == "fnxa"
    assert told(79) == "nxa"
    assert told(60) == "xa"
    assert told(59) == "x"
    assert told(0) == "x"


def test_a_second_transcript_of_the_same_seconds_is_left_out_and_frames_are_not():
    anchor = chunk(60.0, 90.0)
    again = chunk(61.0, 91.0, seq=2, source_doc_id="vault:a.de.srt", path="a.de.srt")
    later = replace(again, seq=3, chunk_id="c3", locator=Locator(time_start=91.0, time_end=99.0))
    shown = replace(again, seq=4, chunk_id="c4", modality="video_frame")
    older = chunk(40.0, 60.0, seq=5, docid="an older revision")
    near = [older, again, shown, later]
    assert [one.seq for one in drop_repeated([anchor], near)] == [4, 3]
    # of a frame: one transcript, that of the shortest path
    picture = chunk(70.0, 70.0, modality="video_frame", source_doc_id="vault:f.md", seq=9)
    assert [one.seq for one in drop_repeated([picture], [again, anchor])] == [1]


def test_the_best_sentence_is_set_apart_marked_and_first_in_json(opened):
    library = opened()
    talk = said((0, 9, "Anna", "We begin. A yodel is a song. It is loud."), (9, 12, "Anna", "Yes."))
    put(library.database, "yodel.srt", talk)
    (hit,) = ask(library, "what is a yodel")
    assert format_evidence(hit.evidence).split("\n") == [
        '00:00:00–00:00:09 (Audio, Anna): "We begin."',
        '> 00:00:00–00:00:09 (Audio, Anna): "A yodel is a song."',
        '00:00:00–00:00:12 (Audio, Anna): "It is loud. Yes."',
    ]
    told = hit.evidence.model_dump()
    assert next(iter(told)) == "best_sentence"
    assert told["best_sentence"]["text"] == "A yodel is a song."
    assert told["best_sentence"]["time_start"] == hit.moment == 0.0
    talk = said((0, 4, None, "So."), (4, 8, None, "A chirp"), (8, 12, None, "is a song."))
    put(library.database, "chirp.srt", talk)
    best = ask(library, "what is a chirp")[0].evidence.best_sentence  # over several cues
    assert (best.text, best.time_start, best.time_end) == ("A chirp is a song.", 4.0, 12.0)


def test_each_hit_of_a_bundle_shows_its_best_sentence_and_the_best_hits_is_marked(opened):
    found = ask(opened(), "normalisation formula", top_k=2)
    evidence = found[0].evidence
    assert {line.chunk_id for line in evidence.lines if line.is_best} == {
        hit.chunk_id for hit in found
    }
    assert evidence.best_sentence.chunk_id == found[0].chunk_id
    assert format_evidence(evidence).count("> ") == 1
    assert evidence.best_sentence.time_start == found[0].moment


def test_a_long_bundle_is_cut_around_the_best_sentence():
    words = [f"w{number:03}" for number in range(100)]
    cues = tuple(Cue(5 * at, 5 * at + 4, at, at + 1) for at in range(100))
    whole = chunk(0.0, 100.0, text=" ".join(words), cues=cues)
    best = {whole.chunk_id: (250, 254)}
    told = build_evidence_lines([whole], [], TimeWindow(0, 100), max_chars=160, best=best)
    (at,) = [number for number, line in enumerate(told) if line.is_best]
    assert told[at].text == "w050"
    before, after = (" ".join(line.text for line in part) for part in (told[:at], told[at + 1 :]))
    assert before.endswith(" w049")
    assert after.startswith("w051 ")
    assert 80 <= sum(len(line.text) for line in told) <= 160
    few = build_evidence_lines([whole], [], TimeWindow(0, 100), max_chars=0, best=best)
    assert [line.text for line in few] == ["w050"]


def test_evidence_shared_by_two_passages_is_shown_once():
    text = "one. two. three."
    cues = (Cue(0, 4, 0, 10), Cue(5, 9, 10, 20), Cue(10, 16, 20, 30))
    before = chunk(0.0, 20.0, text=text[:9], cues=cues[:2], start_offset=0, end_offset=9)
    shared = tuple(cue._replace(start=cue.start - 5, end=cue.end - 5) for cue in cues[1:])
    after = chunk(10.0, 30.0, text=text[5:], cues=shared, start_offset=5, end_offset=16, seq=2)
    for anchors, others in (([before, after], []), ([after], [before]), ([before], [after])):
        told = build_evidence_lines(anchors, others, TimeWindow(0, 30), max_chars=100)
        assert " ".join(line.text for line in told) == text


def test_two_transcripts_of_the_same_seconds_have_a_bundle_each(opened):
    library = opened()
    german = said((66, 80, None, "Dann wenden wir apply normalisation an."))
    put(library.database, "talks/lecture.de.srt", german, media="talks/lecture")
    found = ask(library, "apply normalisation formula", top_k=3)
    by_path = {hit.path: hit for hit in found}
    assert stage(found).note == "3 hits in 2 bundles"
    assert lines(by_path["talks/lecture.srt"]) == AROUND
    first = next(hit for hit in found if hit.modality != "video_frame")
    assert by_path["talks/frames.md"].evidence == first.evidence
    told = lines(by_path["talks/lecture.de.srt"])
    assert [line for line in told if "Audio" in line] == [
        # 66 - 15 is 51: the English passages of 30-60 and 92-120 tell of other seconds
        AROUND[0],
        '00:01:06–00:01:20 (Audio): "Dann wenden wir apply normalisation an."',
        AROUND[4],
    ]


def test_a_language_model_reads_a_shared_bundle_only_with_its_first_node(opened):
    service = SearchServiceV2(opened())
    asked = {"dataset": "vault", "mode": "lexical", "top_k": 5}
    nodes = service.retrieve("normalisation formula welcome", **asked)
    assert len(nodes) == 3
    read = [one.node.get_content(metadata_mode=MetadataMode.LLM) for one in nodes]
    shared = [place for place, one in enumerate(nodes) if len(one.evidence.anchors) == 2]
    assert [AROUND[0] in read[place] for place in shared] == [True, False]
    for place in shared:
        assert nodes[place].node.metadata["evidence"].replace("> ", "") == "\n".join(AROUND)
    assert sum("evidence:" in text for text in read) == 2


def test_a_slide_that_stays_is_one_line_until_another_is_shown():
    anchor, frame = chunk(0.0, 100.0), "video_frame"
    shown = [
        chunk(second, second, seq=seq, text=f"## Frame at 00:{seq:02}\n\n{text}", modality=frame)
        for seq, (second, text) in enumerate(
            [(10.0, "A"), (40.0, "A"), (70.0, "B"), (80.0, "A"), (90.0, "A")], start=2
        )
    ]

    def told(anchors):
        found = build_evidence_lines(anchors, shown, TimeWindow(0, 100), max_chars=100)
        return [(one.time_start, one.time_end, one.text) for one in found if one.kind == "Screen"]

    assert told([anchor]) == [(10, 40, "A"), (70, 70, "B"), (80, 90, "A")]
    assert told([anchor, shown[1]]) == [(40, 40, "A"), (70, 70, "B"), (80, 90, "A")]


def test_an_answer_holds_a_slide_that_stays_once_where_texts_are_distinct(opened):
    library = opened(distinct_text=True)
    slides = [frame(at, f"## Frame at 00:0{at // 60}:30\n\nA yodel.") for at in (30, 90, 150)]
    put(library.database, "yodel.md", *slides)
    assert len(ask(library, "yodel", top_k=5)) == 1
    assert len(ask(opened(), "yodel", top_k=5)) == 3


@table("text, told")
def test_a_frame_is_told_without_heading_fields_and_pictures(text, told):
    assert short_frame_text(text) == told
    # 599 characters and the sign
    assert short_frame_text("word " * 200) == "word " * 119 + "word…"
    assert short_frame_text("x" * 700) == "x" * 599 + "…"
    assert short_frame_text("x" * 600) == "x" * 600
