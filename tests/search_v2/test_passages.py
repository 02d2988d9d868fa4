"""Stored chunks as LlamaIndex nodes."""

from catalog.core.documents import Chunk, Locator
from catalog.search_v2.passages import PassageNode


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
