"""Answers of a search and stored passages, made by hand."""

from catalog.core.documents import Chunk, Locator
from catalog.core.results import (
    Contribution,
    Explanation,
    ResultLocator,
    SearchResult,
    SearchResults,
    StageReport,
)


def part(leg, contribution, rank, raw, weight, query="keys", origin="original"):
    engine = {"lexical": "bm25", "vector": "qdrant"}[leg]
    return Contribution(
        leg=leg,
        engine=engine,
        query=query,
        origin=origin,
        rank=rank,
        raw_score=raw,
        weight=weight,
        contribution=contribution,
    )


LISTS = (
    part("lexical", 8.1021, 1, 12.31, 1.22),
    part("vector", 5.1019, 2, 0.8123, 0.78),
    part("vector", 0.0, 4, 0.79, 0.39, "how to\nrotate keys", "expansion"),
)
FUSED = Explanation(fusion="adaptive", contributions=LISTS, bonus=0.0, fused=13.204, score=13.204)
STAGES = (
    StageReport(name="lexical", status="ran", ms=1.24, note="bm25: 9 passages"),
    StageReport(name="vector", status="failed", ms=12.0, note="ConnectionError: no\nanswer"),
    StageReport(name="rerank", status="skipped", ms=0.0, note="off"),
    StageReport(name="shape", status="ran", ms=0.31),
)


def result(**more):
    fields = {
        "rank": 1,
        "score": 0.9124,
        "path": "notes/keys.md",
        "source_doc_id": "notes:notes/keys.md",
        "dataset": "notes",
        "chunk_id": "c1",
        "title": "Keys",
        "text": "Rotate the\r\nAPI keys\there.",
        "docid": "3fa9c1ab",
        "heading_path": ("Keys", "Rotating"),
        "modality": "text",
        "locator": ResultLocator(line_start=120, line_end=140),
        "start_offset": 0,
        "end_offset": 27,
        "snippet": "Rotate the\r\nAPI keys\there.",
        "snippet_lines": (120, 121),
        "snippet_locator": ResultLocator(line_start=120, line_end=121),
        "matches": ((0, 6), (16, 20)),
        "citation": "[source: Keys, lines 120-140]",
        "relevance": 0.8312,
        "certainty": "likely",
        "explain": FUSED,
    }
    return SearchResult(**{**fields, **more})


def answer(*results, **more):
    fields = {"query": "keys", "datasets": ("notes",), "mode": "hybrid", "stages": STAGES}
    fields |= {"confidence": 0.8312, "low_confidence": False}
    return SearchResults(results, elapsed_ms=14.0, **{**fields, **more})


def stored(text="text", name="c1", **more):
    """A stored passage of ``notes/keys.md`` of that chunk id, which the keywords change."""
    path = more.setdefault("path", "notes/keys.md")
    fields = {
        "seq": 1, "chunk_id": name, "source_doc_id": f"notes:{path}", "dataset": "notes",
        "docid": "3fa9c1ab", "title": "Keys", "position": 0, "start_offset": 0,
        "end_offset": len(text), "heading_path": (), "modality": "text", "locator": Locator(),
        "text": text,
    }  # fmt: skip
    return Chunk(**{**fields, **more})
