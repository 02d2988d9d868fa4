"""What a user could tell two stores apart by, over a small corpus."""

from pathlib import Path

from sqlalchemy import func, select

from catalog.library.library import Library
from catalog.search_v2.service import SearchServiceV2
from catalog.store.schema import chunk_windows, chunks, documents, embeddings, manifest, revisions

QUERIES = ("alpha topic 3", "common words everywhere", "topic 7 beta", "gamma 11")
MODES = ("lexical", "vector", "hybrid")
COUNTED = (documents, revisions, chunks, chunk_windows, manifest)


def write_corpus(folder: Path) -> Path:
    """Write twelve documents of several passages each."""
    for number in range(12):
        body = f"alpha beta topic {number} " + "common words everywhere gamma " * (5 + number)
        (folder / f"doc{number:02}.md").write_text(f"# Topic {number}\n\n{body} {number}.\n")
    return folder


def state_of(library: Library) -> dict[str, object]:
    """Ids, numbers of rows and answers."""
    service = SearchServiceV2(library)
    answers = {
        # The order in which an index adds up its vectors' floats changes later digits. Equal scores
        # come by row, and a document that is read again gets later rows.
        (query, mode): sorted(
            (-round(result.score, 5), result.chunk_id)
            for result in service.search(query, dataset="notes", mode=mode, top_k=20, strict=True)
        )
        for query in QUERIES
        for mode in MODES
    }
    with library.database.read() as connection:
        ids = list(connection.scalars(select(chunks.c.chunk_id).order_by(chunks.c.chunk_id)))
        counts = {
            table.name: connection.scalar(select(func.count()).select_from(table))
            for table in COUNTED
        }
        of_passages = select(func.count()).where(embeddings.c.side == "document")
        counts["vectors"] = connection.scalar(of_passages)
    return {"ids": ids, "counts": counts, "answers": answers}
