"""Stored chunks as LlamaIndex nodes: made where a caller asks for nodes."""

from catalog.core.documents import Chunk, Locator
from catalog.library.indexing import Indexer
from catalog.search_v2.nodes import PassageNode
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library


def test_a_nodes_metadata_is_its_own_to_change():
    metadata = {"tags": ["a"], "more": {"names": [["b"]]}, "year": 2024}
    chunk = Chunk(
        0, "c", "d", "set", "d.md", "d0", "D", 0, 0, 4, (), "text", Locator(), "text", metadata
    )
    first = PassageNode.of(chunk)
    first.metadata["tags"].append("other")
    first.metadata["more"]["names"][0].clear()
    first.metadata["year"] = 1999
    again = PassageNode.of(chunk).metadata
    assert (again["tags"], again["more"], again["year"]) == (["a"], {"names": [["b"]]}, 2024)


def test_a_search_makes_no_nodes_and_a_retrieval_one_for_each_passage(tmp_path, notes, monkeypatch):
    made = []
    make = PassageNode.of
    monkeypatch.setattr(PassageNode, "of", lambda chunk: made.append(chunk) or make(chunk))
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(notes, "notes")
        service = SearchServiceV2(library)
        results = service.search("revoke a leaked key", top_k=2)
        assert len(results) == 2
        assert made == []
        nodes = service.retrieve("revoke a leaked key", top_k=2)
    assert [node.node_id for node in nodes] == [result.chunk_id for result in results]
    assert len(made) == 2
