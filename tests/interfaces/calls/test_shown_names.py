"""Every name that an output shows is taken by every argument that takes a name."""

import pytest

from catalog.core.errors import CatalogError
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.mcp import list_documents, read_document
from catalog.interfaces.tools import call_tool
from catalog.library.indexing import Indexer
from fakes import open_library, write
from tables import read_cases, table

SUBTITLES = """1
00:00:10,000 --> 00:00:14,000
We apply the walrus of batch normalisation.
"""
GERMAN = "WEBVTT\n\n00:10.000 --> 00:14.000\nWir normalisieren das walrus.\n"
FRAME = "# Visual Frame at 00:12\n\nThe walrus formula.\n"
LECTURE = set(read_cases(__file__)["lecture"])


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    write(
        folder,
        **{
            "talks__my lecture_dot_srt": SUBTITLES,
            "talks__my lecture_dot_de_dot_vtt": GERMAN,
            "talks__my lecture_frames__frame_00m12s_dot_md": FRAME,
            "talks__my lecture_dot_mp4": "\0\0\0\x20ftypisom\0\0",
            "pets__photo_dot_png": "\x89PNG\r\n\x1a\n\0\0",
            "pets__photo_dot_png_dot_md": "A photo of a walrus.\n",
            "_dot_converted__papers__scan_dot_md": "# On [the] walrus\n\nA scanned walrus.\n",
            "papers__scan_dot_pdf": "%PDF-1.4",
            "web_dot_md": "---\nsource_url: https://e.org/?t=9&a=1\n---\n# Web\n\nA web walrus.\n",
            "plain_dot_md": "# Plain\n\nA plain walrus.\n",
        },
    )
    with LocalEngine(open_library(tmp_path_factory.mktemp("home"), max_chunks_per_doc=0)) as opened:
        Indexer(opened.library).build(folder, "zoo")
        yield opened


def found(engine, **narrowed):
    answer = engine.ask("search", {"query": "walrus", "top_k": 20, **narrowed})
    return {hit["path"] for hit in answer["results"]}


def shown(engine):
    """Yield each name that is shown, with the files it is a name of."""
    for hit in engine.ask("search", {"query": "walrus", "top_k": 20})["results"]:
        files = LECTURE if hit["path"] in LECTURE else {hit["path"]}
        names = [hit["path"], hit["source_doc_id"], f"#{hit['docid']}", hit["citation"]]
        names += [hit["title"], hit.get("original"), (hit["link"] or "").partition("#")[0]]
        names += [hit["link"], (hit["evidence"] or {}).get("media")]
        yield from ((name, files) for name in filter(None, names))
    entries = engine.ask("browse", {})["entries"]
    originals = {"talks/my lecture.mp4": LECTURE, "pets/photo.png": {"pets/photo.png.md"}}
    originals["papers/scan.pdf"] = {".converted/papers/scan.md"}
    for entry in entries:
        files = originals.get(entry["path"], {entry["path"]})
        for name in (entry["path"], entry["source_doc_id"], f"#{entry['docid']}", entry["title"]):
            yield name, files
    for passage in call_tool(engine, "search_chunks", {"query": "walrus"}).data["results"]:
        files = LECTURE if passage["path"] in LECTURE else {passage["path"]}
        yield passage["reference"], files
    yield "https://e.org/?a=1", {"web.md"}


@pytest.mark.slow
def test_a_name_that_is_shown_finds_its_document_wherever_a_name_is_taken(engine):
    names = dict(shown(engine))
    assert {"my lecture.mp4", "pets/photo.png", "papers/scan.pdf", "talks/my%20lecture.mp4"} < {
        *names
    }
    for number, (name, files) in enumerate(names.items()):
        assert found(engine, docs=[name]) == files, name
        assert found(engine, name=name) == files, name
        if number % 2:  # half of them say enough of the other ways to name a document
            continue
        for field in ("path", "media", "source_doc_id", "docid"):
            assert found(engine, filters={field: name}) == files, (field, name)
            assert not found(engine, filters={field: {"!=": name}}) & files, (field, name)
        assert engine.ask("get", {"reference": name})["path"] in files, name
        several = engine.ask("multi_get", {"patterns": [name]})["documents"]
        assert {document["path"] for document in several} <= files, name
        listed = engine.ask("browse", {"name": name})
        assert listed["total"] == 1, name
        assert engine.ask("browse", {"filters": {"path": name}})["total"] == 1, name
        chunks = call_tool(engine, "search_chunks", {"query": "walrus", "doc_name_filter": name})
        assert {passage["path"] for passage in chunks.data["results"]} == files, name
        assert call_tool(engine, "search", {"query": "walrus", "docs": [name]}).data["results"], (
            name
        )
        assert call_tool(engine, "get", {"reference": name}).data["status"] == "ok", name


def test_every_document_that_mcp_lists_as_a_resource_can_be_read(engine):
    listed = list_documents(engine, None).resources
    assert [resource.name for resource in listed] == [
        entry["path"] for entry in engine.ask("browse", {"sort": "name"})["entries"]
    ]
    for resource in listed:
        (content,) = read_document(engine, resource.uri).contents
        assert "walrus" in content.text


def test_a_list_of_who_may_answer_takes_paths_ids_and_originals_alone(engine):
    assert found(engine, docs=["talks/my lecture.srt"]) == LECTURE
    search = engine.service.search
    for names, files in [
        (["talks/my lecture.srt"], {"talks/my lecture.srt"}),
        (["zoo:talks/my lecture.mp4"], LECTURE),
        (["papers/scan.pdf"], {".converted/papers/scan.md"}),
        (["Plain"], set()),
        (["[source: Plain, line 1]"], set()),
    ]:
        hits = search("walrus", dataset="zoo", doc_ids=names, top_k=20)
        assert {hit.path for hit in hits} == files


def test_get_reports_a_name_that_several_documents_share(tmp_path):
    folder = tmp_path / "documents"
    write(folder, a__talk_dot_srt=SUBTITLES, b__talk_dot_srt=SUBTITLES)
    write(folder, a__talk_dot_mp4="\0\0", b__talk_dot_mp4="\0\0")
    with LocalEngine(open_library(tmp_path / "home")) as engine:
        Indexer(engine.library).build(folder, "two")
        with pytest.raises(CatalogError, match="a/talk"):
            engine.ask("get", {"reference": "talk.mp4"})
        assert engine.ask("get", {"reference": "a/talk.mp4"})["path"] == "a/talk.srt"


def test_the_name_of_a_file_of_records_stands_for_all_of_them(tmp_path):
    lines = ['{"_id": "zebra", "text": "A walrus."}', '{"_id": "ape", "text": "Two walrus."}']
    write(tmp_path / "docs", data__corpus_dot_jsonl="\n".join(lines), a_dot_md="A third walrus.")
    with LocalEngine(open_library(tmp_path / "home", max_chunks_per_doc=0)) as engine:
        Indexer(engine.library).build(tmp_path / "docs", "zoo")
        every = {"zebra", "ape"}
        for name in ("data/corpus.jsonl", "zoo:data/corpus.jsonl", "corpus.jsonl", "data/*.jsonl"):
            assert found(engine, docs=[name]) == every, name
        for path in ("data/corpus.jsonl", "corpus.jsonl"):
            assert found(engine, filters={"path": path}) == every
            assert found(engine, filters={"path": {"!=": path}}) == {"a.md"}
        assert {one["path"] for one in engine.ask("browse", {"name": "corpus"})["entries"]} == every
        got = engine.ask("multi_get", {"patterns": ["data/corpus.jsonl"]})["documents"]
        assert {one["path"] for one in got} == every
        assert found(engine, docs=["data/corpus.jsonl:2"]) == {"ape"}
        for line, path in enumerate(("zebra", "ape"), start=1):
            got = engine.ask("get", {"reference": f"data/corpus.jsonl:{line}"})
            assert (got["path"], got["start"]) == (path, line)
        for missing in ("data/corpus.jsonl", "data/corpus.jsonl:3"):
            with pytest.raises(CatalogError, match="data/corpus"):
                engine.ask("get", {"reference": missing})


@pytest.mark.parametrize("records", [1, 3])
@table("place")
def test_a_line_without_a_record_is_no_name_of_the_records_in_other_lines(tmp_path, records, place):
    lines = [f'{{"_id": "eel{n}", "text": "An eel, {n}."}}' for n in range(records)]
    write(tmp_path / "docs", data__fish_dot_jsonl="\n".join(lines))
    with LocalEngine(open_library(tmp_path / "home")) as engine:
        Indexer(engine.library).build(tmp_path / "docs", "sea")
        for verb, asked in (
            ("search", {"query": "eel", "docs": [place]}),
            ("get", {"reference": place}),
            ("multi_get", {"patterns": [place]}),
        ):
            with pytest.raises(CatalogError):
                engine.ask(verb, asked)
        first = place.replace("9:1", "9").replace("8-9", "9").replace("9", "1").replace(":0", ":1")
        hits = engine.ask("search", {"query": "eel", "docs": [first]})["results"]
        assert [hit["path"] for hit in hits] == ["eel0"]
