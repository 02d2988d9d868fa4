"""The tables of the store, as SQLAlchemy Core, and SQLite's full text of passages and cards.

datasets ─┬─ dataset_settings   the settings it was made with
          └─< documents ─ revisions (the live text)
                │ ├─< document_fields   every filterable value, one row each
                │ ├── document_cards    a short description (derived; document_cards_fts by trigger)
                │ └─< chunks ─< chunk_sections    headings over the chunk
                │         └─< chunk_windows ─ embeddings   (by key; the cache outlives chunks)
manifest   what was read, and how that went
meta       the store's own id, model and versions
eval_runs  searches measured on golden queries
llm_cache  answers of language models and rerankers; scores go with their passage's text
query_log  requests at an edge, and their outcome
"""

from typing import Any

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
)

from catalog.store.sql_forms import Number as Integer
from catalog.store.sql_forms import PlainText as Text
from catalog.store.sql_forms import ignoring_case, shortened

metadata = MetaData()


def _table(name: str, *items: Column[Any] | Index | UniqueConstraint, **options: Any) -> Table:
    return Table(name, metadata, *items, **options)


def _owner(name: str, column: str, kind: Any = Integer, *, is_key: bool = False) -> Column[Any]:
    """Return a column that names the owner of a row, with which the row is deleted."""
    owner = ForeignKey(column, ondelete="CASCADE")
    return Column(name, kind, owner, primary_key=is_key, nullable=False)


def _columns(kind: Any, *names: str, nullable: bool = False) -> list[Column[Any]]:
    return [Column(name, kind, nullable=nullable) for name in names]


meta = _table("meta", Column("key", Text, primary_key=True), *_columns(Text, "value"))

datasets = _table(
    "datasets",
    Column("name", Text, primary_key=True),
    *_columns(Text, "root"),
    Column("include", Text, nullable=False, default="[]"),  # JSON list of globs, as built
    Column("exclude", Text, nullable=False, default="[]"),
    Column("generation", Integer, nullable=False, default=0),  # +1 with every visible change
    *_columns(Float, "created_at", "updated_at"),
    Column("state", Text, nullable=False, default=""),  # new with every change or restore
)

dataset_settings = _table(
    "dataset_settings",
    _owner("dataset", "datasets.name", Text, is_key=True),
    Column("preset", Text),  # its name; NULL: none
    Column("settings", Text, nullable=False),  # JSON object: those that shape passages, by name
)

documents = _table(
    "documents",
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("source_doc_id", Text, nullable=False, unique=True),
    _owner("dataset", "datasets.name", Text),
    *_columns(Text, "path", "title", "file_type", "source_type"),
    Column("file", Text, nullable=False),  # the manifest's file it came from
    Column("metadata", Text, nullable=False),  # JSON object
    *_columns(Text, "revision_id", "content_hash", "docid"),
    Column("characters", Integer, nullable=False),
    Column("pipeline", Text, nullable=False),  # fingerprint of how it was cut and embedded
    Column("indexed_at", Float, nullable=False),
    Column("dated", Float),  # seconds from 1970: see store.document_names; NULL: no date
    UniqueConstraint("dataset", "path"),
    Index("documents_docid", "docid"),
    Index("documents_file", "dataset", "file"),
    Index("documents_type", "dataset", "file_type"),
    sqlite_autoincrement=True,
)
# The orders in which a listing sorts.
_by_name = ignoring_case(documents.c.path)
Index("documents_name", documents.c.dataset, _by_name)
Index("documents_dated", documents.c.dataset, documents.c.dated.desc(), _by_name)

revisions = _table(
    "revisions",
    _owner("document_id", "documents.id", is_key=True),
    *_columns(Text, "revision_id", "text"),
    Column("checksum", Integer),  # of the document as it is shown: see store.chunks
)

document_fields = _table(
    "document_fields",
    _owner("document_id", "documents.id"),
    Column("field", Text, nullable=False),
    Column("kind", Text, nullable=False),  # s, n or b: see core.filters.value_kind
    Column("text_value", Text),
    Column("number_value", Float),
    Column("folded", Text),  # text_value in folded case; NULL where that is text_value itself
    Index("document_fields_number", "field", "number_value"),
    Index("document_fields_of", "document_id", "field"),
)
# Covers conditions on text, so that SQLite need not read the rows themselves.
Index(
    "document_fields_texts",
    document_fields.c.field,
    shortened(document_fields.c.text_value),
    shortened(document_fields.c.folded),
    document_fields.c.kind,
    document_fields.c.document_id,
)

document_cards = _table(
    "document_cards",
    _owner("document_id", "documents.id", is_key=True),
    Column("summary", Text, nullable=False),
    Column("version", Integer, nullable=False, default=0),  # unused: stores made before have it
)

chunks = _table(  # the checksum covers the values in this order
    "chunks",
    Column("seq", Integer, primary_key=True, autoincrement=True),  # never reused
    Column("chunk_id", Text, nullable=False, unique=True),
    _owner("document_id", "documents.id"),
    *_columns(Text, "dataset"),
    *_columns(Integer, "position"),
    *_columns(Text, "modality"),
    *_columns(Integer, "start_offset", "end_offset"),
    *_columns(Integer, "page", "line_start", "line_end", nullable=True),
    *_columns(Float, "time_start", "time_end", nullable=True),
    *_columns(Text, "title"),
    # JSON list, outermost first; its last item may be a list: lines that are searched and not shown
    *_columns(Text, "headings", "text", "text_hash"),
    Column("tokens", Integer),  # as the chunker counted them; NULL: it counts none
    Column("cues", Text),  # JSON list of [start, end, seconds, seconds, speaker]; NULL: none
    Column("page_breaks", Text),  # JSON list of offsets in the text; NULL: one page, or no pages
    Column("checksum", Integer),  # of the passage as it is shown: see store.chunks
    Column("sections", Text),  # JSON list of further headings in the chunk; NULL: none
    Column("places", Text),  # JSON object: see core.places; NULL: the lines of the text, or pages
    Column("own_metadata", Text),  # JSON object, in addition to the document's; NULL: none
    Index("chunks_document", "document_id", "position"),
    Index("chunks_dataset", "dataset", "seq"),
    sqlite_autoincrement=True,
)

chunk_sections = _table(
    "chunk_sections",
    _owner("seq", "chunks.seq"),
    Column("heading", Text, nullable=False),
    Index("chunk_sections_seq", "seq"),
)
Index("chunk_sections_heading", shortened(chunk_sections.c.heading))

chunk_windows = _table(
    "chunk_windows",
    _owner("seq", "chunks.seq", is_key=True),
    Column("window", Integer, primary_key=True),
    Column("embed_key", Text, nullable=False),
    Index("chunk_windows_key", "embed_key"),
)

embeddings = _table(
    "embeddings",
    Column("embed_key", Text, primary_key=True),
    *_columns(Text, "fingerprint", "side"),
    Column("vector", LargeBinary, nullable=False),  # little-endian float32
    Column("checksum", Integer),  # CRC-32 of the vector's key and bytes
    Column("created_at", Float, nullable=False),
    Column("hits", Integer, nullable=False, default=0),  # unused, as side: stores before have it
    Index("embeddings_side", "side", "created_at"),
)

embedded_windows = chunks.join(chunk_windows, chunk_windows.c.seq == chunks.c.seq).join(
    embeddings, embeddings.c.embed_key == chunk_windows.c.embed_key
)
"""Chunks with their windows that have a vector."""

manifest = _table(
    "manifest",
    _owner("dataset", "datasets.name", Text, is_key=True),
    Column("file", Text, primary_key=True),  # the file as listed; it may give several documents
    *_columns(Integer, "size", "mtime_ns"),
    *_columns(Text, "pipeline", "state"),  # see store.manifest
    Column("reason", Text),
    Column("seen_at", Float, nullable=False),
    Column("mount", Text),  # where its drive is mounted; NULL: outside the dataset
    Column("documents", Integer, nullable=False),  # how many the file had when it was noted
    *_columns(Integer, "ctime_ns", "inode", nullable=True),
    Column("digest", Text),  # hash of its bytes, hexadecimal; NULL: it was not read
)

eval_runs = _table(
    "eval_runs",
    Column("id", Text, primary_key=True),  # hexadecimal
    Column("key", Text, nullable=False),  # hash of configuration, corpus, queries and code
    Column("created_at", Float, nullable=False),
    *_columns(Text, "dataset", "golden", "backend"),  # no foreign key: runs outlive datasets
    Column("labels", Text, nullable=False),  # hash of the queries with their labels
    *_columns(Integer, "queries", "top_k"),
    Column("identity", Text, nullable=False),  # JSON object: what exactly was run
    Column("scores", Text, nullable=False),  # JSON object: metric -> query id -> score
    Column("summary", Text, nullable=False),  # JSON object: means, rates, latency
    Column("lists", LargeBinary, nullable=False),  # the run, compressed JSON
    Column("answers", LargeBinary),  # compressed JSON, of a run that asked for answers
    Index("eval_runs_key", "key"),
)

llm_cache = _table(
    "llm_cache",
    Column("key", Text, primary_key=True),  # hexadecimal
    Column("kind", Text, nullable=False),  # expansion, rerank or answer
    Column("model", Text, nullable=False),  # which model and version of the prompt
    Column("value", Text, nullable=False),  # JSON
    Column("text_hash", Text),  # as chunks.text_hash: the passage scored; rerank only
    Column("created_at", Float, nullable=False),
    Column("hits", Integer, nullable=False, default=0),
    Index("llm_cache_kind", "kind", "created_at"),
    Index("llm_cache_text", "text_hash"),
)

query_log = _table(  # see store.log_entries; no foreign keys: entries outlive datasets
    "query_log",
    Column("id", Integer, primary_key=True, autoincrement=True),
    *_columns(Float, "asked_at", "elapsed_ms"),
    *_columns(Text, "verb", "edge", "query_hash"),
    *_columns(Text, "datasets", "passages", "stages", "errors"),  # JSON lists
    *_columns(Text, "role", "agent", "query", "abstained", "model", "profile", nullable=True),
    *_columns(Float, "confidence", "retrieval_ms", "generation_ms", "cost", nullable=True),
    *_columns(Integer, "prompt_tokens", "reply_tokens", nullable=True),
    Index("query_log_asked", "asked_at"),
    sqlite_autoincrement=True,
)

BUSY_TIMEOUT_MS = 30_000  # that a connection waits for one that writes
# Options of a snapshot's connection, which read these once: the store's own settings, and the
# states of its datasets.
KEPT_META, KEPT_STAMPS = "catalog_meta", "catalog_stamps"

# External content: the text is stored once, in chunks; triggers keep the index equal to the rows.
# The texts of a card are in several tables or in none: its index stores its own copy.
FULL_TEXT = """
CREATE VIRTUAL TABLE chunks_fts
USING fts5(
    title, headings, text,
    content='chunks', content_rowid='seq', tokenize="porter unicode61 remove_diacritics 2"
);

CREATE TRIGGER chunks_fts_insert AFTER INSERT ON chunks BEGIN
    INSERT INTO chunks_fts(rowid, title, headings, text)
    VALUES (new.seq, new.title, new.headings, new.text);
END;

CREATE TRIGGER chunks_fts_delete AFTER DELETE ON chunks BEGIN
    INSERT INTO chunks_fts(chunks_fts, rowid, title, headings, text)
    VALUES ('delete', old.seq, old.title, old.headings, old.text);
END;

CREATE VIRTUAL TABLE document_cards_fts
USING fts5(
    title, name, headings, summary, metadata, tokenize="porter unicode61 remove_diacritics 2"
);

CREATE TRIGGER document_cards_fts_delete AFTER DELETE ON document_cards BEGIN
    DELETE FROM document_cards_fts WHERE rowid = old.document_id;
END
"""
