"""How many passages of one document, its copies and its recording answer, and how deep legs go."""

import pytest

from catalog.core.query import parse_query
from catalog.core.settings import AnswerSettings, RAGv2Settings
from catalog.library.browse import DocumentCatalog
from catalog.library.health import dataset_stats, describe_store
from catalog.library.indexing import Indexer
from catalog.retrieval.legs import Question, plan_legs
from catalog.retrieval.parts import StageLog
from catalog.retrieval.search import find
from catalog.search_v2.service import SearchServiceV2
from catalog.store.restriction import Restriction
from fakes import write
from stores import open_store, service_of
from tables import table

LONG = "\n\n".join(f"# Part {n}\n\n" + f"The walrus of part {n} swims. " * 12 for n in range(8))


FILES = {"zoo/long.md": LONG, "zoo/other.md": LONG.replace("swims", "sleeps")}


@pytest.fixture
def service():
    return service_of(FILES)


def paths(service, **asked):
    return [one.path for one in service.search("walrus", dataset="zoo", top_k=7, **asked)]


def test_answers_from_many_documents_hold_three_passages_of_each_at_most(service):
    assert sorted(paths(service)) == ["long.md"] * 3 + ["other.md"] * 3
    assert sorted(paths(service, doc_ids=["long.md", "other.md"])) == sorted(paths(service))


@table("confined")
def test_an_answer_confined_to_one_document_is_filled_from_it(service, confined):
    found = paths(service, **confined)
    assert set(found) == {"long.md"}
    assert len(found) == 7


def test_an_answer_confined_to_one_recording_is_filled_from_it():
    spoken = "".join(f"[{n:02}:00 - {n:02}:59] The walrus of minute {n}.\n\n" for n in range(9))
    talk = {"zoo/talk.md": f"# Transcription\n\n{spoken}", "zoo/talk.mp4": ""}
    service = service_of(FILES | talk)
    assert paths(service, filters={"media": "talk"}) == ["talk.md"] * 7


def test_recordings_of_one_name_in_two_datasets_keep_their_caps():
    spoken = "".join(f"[{n:02}:00 - {n:02}:59] The walrus of minute {n}.\n\n" for n in range(9))
    talk = {"talk.md": f"# Transcription\n\n{spoken}", "talk.mp4": ""}
    files = {f"{name}/{file}": talk[file] for name in ("one", "two") for file in talk}
    asked = {"dataset": ["one", "two"], "filters": {"path": "talk.mp4"}, "top_k": 9}
    both = service_of(files).search("walrus", **asked)
    assert sorted(one.source_doc_id for one in both) == 3 * ["one:talk.md"] + 3 * ["two:talk.md"]


def test_best_chunk_mode_stays_when_confined_to_one_document(service):
    best = service.with_settings({"max_chunks_per_doc": 1})
    assert paths(best, doc_ids=["long.md"]) == ["long.md"]


SAID = "".join(
    f"{n + 1}\n00:{5 * n:02}:00,000 --> 00:{5 * n:02}:30,000\nThe walrus of minute {n} speaks.\n\n"
    for n in range(4)
)


LECTURE = {
    "zoo/talk.srt": SAID,
    "zoo/talk.mp4": "\0\0",
    "zoo/talk.de.srt": SAID.replace("speaks", "spricht"),
    "zoo/a.md": "# A\n\nA walrus.\n",
    "zoo/b.md": "# B\n\nThe other walrus.\n",
    **{
        f"zoo/talk_frames/frame_{n:02}m10s.md": f"# Frame at {n:02}:10\n\nWalrus slide {n}.\n"
        for n in range(0, 20, 5)
    },
}


@pytest.fixture
def lecture():
    """A lecture that six files tell of, and two other documents."""
    return service_of(LECTURE, transcript_window_seconds=20)


def test_all_files_of_a_recording_share_one_cap(lecture):
    hits = lecture.search("walrus", dataset="zoo", top_k=20)
    assert sorted(hit.original or hit.path for hit in hits) == ["a.md", "b.md"] + 3 * ["talk.mp4"]


def test_frames_in_a_file_beside_a_transcript_belong_to_its_recording():
    said = "# Talk\n\n## Transcript\n\n[00:00 - 00:20] The walrus speaks of its long tusks.\n"
    frames = "# Talk\n\n## Frame at 00:10\n\nA slide.\n\n## Frame at 05:00\n\nThe end.\n"
    service = service_of({"zoo/talks/talk.md": said, "zoo/talks/talk_frames.md": frames})
    assert DocumentCatalog(service.library).query(dataset="zoo").total == 1
    [hit] = service.search("walrus", dataset="zoo", docs=["talks/talk_frames.md"], top_k=1)
    assert hit.path == "talks/talk.md"
    assert [line.kind for line in hit.evidence.lines] == ["Audio", "Screen"]


@table("file, text")
def test_what_is_called_like_a_recording_is_a_document_of_its_own(file, text):
    files = {"zoo/talk.srt": SAID, "zoo/talk.mp4": "\0\0", f"zoo/{file}": text}
    service = service_of(files, transcript_window_seconds=20)
    hits = service.search("walrus", dataset="zoo", top_k=20)
    assert sorted(hit.original or hit.path for hit in hits) == ["talk"] + 3 * ["talk.mp4"]
    assert DocumentCatalog(service.library).query(dataset="zoo").total == 2
    assert dataset_stats(service.library, "zoo").documents == 2


def test_a_recording_is_one_document_in_listings_and_counts(lecture, tmp_path):
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
    with open_store(LECTURE, tmp_path, transcript_window_seconds=20) as own:
        assert Indexer(own).update("zoo").documents == 3


def test_a_listing_pages_through_recordings_as_through_documents(lecture):
    pages = [
        DocumentCatalog(lecture.library).query(dataset="zoo", limit=1, offset=offset)
        for offset in range(4)
    ]
    assert [[entry.path for entry in page.entries] for page in pages] == [
        ["a.md"], ["b.md"], ["talk.mp4"], [],
    ]  # fmt: skip


@table("name")
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


NOTE = "# Bike\n\nThe chain of the blue bike jumps. Tighten the cable a quarter turn.\n"
COPIES = {f"copy{n}.md" for n in range(8)}
COPIED = {
    **{f"notes/{name}": NOTE for name in sorted(COPIES)},
    **{f"notes/other{n}.md": f"# Ride {n}\n\nThe bike went {n + 3} miles.\n" for n in range(4)},
    "notes/secret.md": f"---\nconfidentiality: secret\n---\n{NOTE}",
}


@pytest.fixture
def copied(tmp_path):
    with open_store(COPIED, tmp_path, distinct_text=True) as library:
        roles = AnswerSettings(roles=["guest: public, unlabelled"])
        library.settings = library.settings.model_copy(update={"answers": roles})
        yield SearchServiceV2(library)


def places(result):
    return {result.path, *(other.path for other in result.also_in)}


@pytest.mark.parametrize("mode", ["lexical", "vector", "hybrid"])
def test_eight_copies_are_one_result_that_names_them_all_and_others_follow(copied, mode):
    assert RAGv2Settings().distinct_text
    found = copied.search("blue bike chain", top_k=5, mode=mode)
    assert len(found) == 5
    (first,) = [one for one in found if one.also_in]
    assert places(first) == {*COPIES, "secret.md"}
    assert {one.path for one in found if one is not first} == {f"other{n}.md" for n in range(4)}


def test_another_place_has_what_get_takes_and_a_citation(copied):
    first = copied.search("blue bike chain", top_k=1)[0]
    other = next(one for one in first.also_in if one.path != "secret.md")
    assert other.source_doc_id == f"notes:{other.path}"
    assert (other.locator.line_start, other.locator.line_end) == (1, 3)
    assert other.citation == "[source: Bike, lines 1-3]"
    told = first.model_dump(mode="json", exclude_unset=True)["also_in"]
    assert {one["path"] for one in told} == places(first) - {first.path}
    for one in copied.search("miles", top_k=3, mode="lexical").to_dict()["results"]:
        assert "also_in" not in one


@pytest.mark.parametrize("switch", ["setting", "parameter"])
def test_copies_can_be_results_of_their_own(copied, switch):
    asked = {"top_k": 5, "mode": "lexical"}
    if switch == "setting":
        found = copied.with_settings({"distinct_text": False}).search("blue chain", **asked)
    else:
        found = copied.search("blue chain", all_copies=True, **asked)
    assert len({one.path for one in found} & {*COPIES, "secret.md"}) == 5
    assert not any(one.also_in for one in found)


@pytest.mark.parametrize(
    ("narrowed", "expected"),
    [
        ({"role": "guest"}, COPIES),
        ({"doc_ids": ["copy1.md", "copy2.md"]}, {"copy1.md", "copy2.md"}),
        ({"name": "copy3"}, {"copy3.md"}),
        ({"filters": {"path": "copy4.md"}}, {"copy4.md"}),
    ],
)
def test_a_document_outside_scope_is_not_named_as_a_copy(copied, narrowed, expected):
    found = copied.search("blue bike chain", top_k=5, **narrowed)
    assert set().union(*map(places, found)) & {*COPIES, "secret.md"} == expected
    assert ("secret" in str(found.to_dict())) is ("secret.md" in expected)


def test_nodes_name_the_documents_with_the_same_text(copied):
    node = copied.retrieve("blue bike chain", top_k=1)[0].node
    ids = {node.metadata["source_doc_id"], *node.metadata["also_in"]}
    assert ids == {f"notes:{name}" for name in (*COPIES, "secret.md")}


def test_two_versions_that_differ_in_a_number_are_two_results(copied, tmp_path):
    terms = "# Terms\n\nThe fee is {} euros. It falls due on the first day of each quarter.\n"
    write(tmp_path / "terms", a_dot_md=terms.format(500), b_dot_md=terms.format(600))
    Indexer(copied.library).build(tmp_path / "terms", "terms")
    found = copied.search("fee due each quarter", dataset="terms")
    assert {one.path for one in found} == {"a.md", "b.md"}


def test_a_copy_in_another_dataset_is_named_with_it(copied, tmp_path):
    write(tmp_path / "more", bike_dot_md=NOTE)
    Indexer(copied.library).build(tmp_path / "more", "more")
    first = copied.search("blue bike chain", dataset=["notes", "more"], top_k=1)[0]
    named = {(first.dataset, first.path), *((one.dataset, one.path) for one in first.also_in)}
    assert named >= {("more", "bike.md"), ("notes", "copy0.md")}


@table("mode, depths, expected")
def test_both_legs_and_their_fusion_must_have_given_all_they_found(mode, depths, expected):
    words = {"oat": "with", "fig": "with some", "ice": "with a little"}  # ties are read together
    files = {f"tea/{name}.md": f"# {name}\n\nTea {so} {name}.\n" for name, so in words.items()}
    lexical, vector, fused = depths
    query = parse_query("tea", max_chars=100)
    legs = plan_legs(Restriction("tea"), query.parts, mode, k_lex=lexical, k_dense=vector)
    parts = service_of(files).parts
    assert find(parts, legs, Question("tea"), fused, StageLog()).is_exhausted is expected


@pytest.mark.slow
@pytest.mark.parametrize(("text", "is_deeper"), [("Tea 7.", False), ("Coffee.", True)])
def test_legs_go_no_deeper_than_documents_can_fill_the_answer(text, is_deeper):
    long = "".join(f"# Tea {number}\n\nTea {number}.\n\n" for number in range(300))
    files = {"tea/long.md": long, "tea/short.md": text}
    results = service_of(files, chunk_size=20, chunk_overlap=0).search("tea 7", top_k=20)
    (select,) = (stage for stage in results.stages if stage.name == "select")
    assert len(results) == 8  # one in 20 of the long document, and one
    assert ("times deeper" in select.note) == is_deeper
