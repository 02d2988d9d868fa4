"""Precomputed embeddings as the vector leg beside a dataset's words."""

from __future__ import annotations

import json
from pathlib import Path

from catalog.core.scope import Scope
from catalog.library.indexing import Indexer
from catalog.retrieval.legs import Question, run_leg
from catalog.search_v2 import PrecomputedLeg, precomputed_hybrid
from catalog.search_v2.precomputed.semantic_retriever import SemanticContextRetriever
from catalog.search_v2.service import SearchServiceV2
from catalog.store.restriction import Restriction
from fakes import open_library, write


def cache(folder: Path, **vectors: list[float]) -> SemanticContextRetriever:
    """One embedding for the first line of each document, of two numbers."""
    folder.mkdir()
    for number, (name, vector) in enumerate(vectors.items()):
        (folder / f"{number:064x}").write_text(json.dumps(vector))
        sidecar = {"source_file": f"{name}.md", "line_number": 1}
        (folder / f"{number:064x}.meta.json").write_text(json.dumps(sidecar))
    return SemanticContextRetriever(folder)


def test_what_the_embeddings_are_near_is_found_beside_what_the_words_say(tmp_path: Path):
    docs = tmp_path / "docs"
    texts = {"ovens.md": "# Ovens\n\nHeat the oven.", "bread.md": "# Bread\n\nKnead."}
    write(docs, **texts, **{"tax.md": "# Tax\n\nPay."})
    semantic = cache(tmp_path / "cache", ovens=[0, 1], bread=[1, 0], tax=[-1, 0], gone=[1, 0.1])
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(docs, "notes")
        service = SearchServiceV2(library)
        by_words = precomputed_hybrid(semantic, "oven", [0, 0], "notes", parts=service.parts)
        assert by_words.retrieve("oven")[0].node.metadata["path"] == "ovens.md"
        both = precomputed_hybrid(semantic, "oven", [1, 0], "notes", parts=service.parts)
        paths = [node.node.metadata["path"] for node in both.retrieve("oven")]
        assert set(paths[:2]) == {"ovens.md", "bread.md"}
        assert any("precomputed: 3 hits" in report.note for report in both.stages.reports)


def test_the_leg_keeps_to_its_scope(tmp_path: Path):
    docs = tmp_path / "docs"
    write(docs, **{"a.md": "Alpha.", "b.md": "Beta."})
    semantic = cache(tmp_path / "cache", a=[1, 0], b=[0.9, 0.1])
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(docs, "notes")
        within = Restriction("notes", Scope.of(["notes:b.md"]))
        leg = PrecomputedLeg(library.database, within, 5, semantic, [1, 0])
        run = run_leg(library.database, leg.leg, Question("anything"))
        assert run.error is None
        assert [node.node.metadata["path"] for node in leg.retrieve("anything")] == ["b.md"]
        nothing = PrecomputedLeg(
            library.database, Restriction("notes", Scope.of(())), 5, semantic, [1, 0]
        )
        assert nothing.retrieve("anything") == []
