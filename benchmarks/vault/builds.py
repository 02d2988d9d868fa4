"""Checks of what indexing does: coverage, sizes, ids, vectors, failures."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from homes import DATASET, PRESET, Held, Told, build, held, open_home, run
from rows import Row, share

from catalog.core.settings import load_settings
from catalog.embedding.model import EmbeddingModel
from catalog.ingest.readers import ReadFailure, read_file
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.store import manifest

POISON = "xpoisonx"
TIMED_FORMS = {
    "[start-end]": "[00:10-00:15] one\n[00:15-00:20] two\n",
    "[start - end]": "[00:00:10 - 00:00:15] one\n[00:00:15 - 00:00:20] two\n",
    "[start]": "[00:10] one\n[00:15] two\n",
    "[HH:MM:SS]": "[00:00:10] one\n[00:00:15] two\n",
    "MM:SS": "00:10 one\n00:15 two\n",
    "HH:MM:SS": "00:00:10 one\n00:00:15 two\n",
    "# Visual Frame at MM:SS": "# Visual Frame at 00:10\n\none\n\n# Visual Frame at 00:15\n\ntwo\n",
    "# Visual Frame at HH:MM:SS": "# Visual Frame at 00:00:10\n\none\n\n"
    "# Visual Frame at 00:00:15\n\ntwo\n",
    "## Frame at HH:MM:SS": "# Film\n\n## Frame at 00:00:10\n\none\n\n"
    "## Frame at 00:00:15\n\ntwo\n",
}
_TRANSCRIPT = "# Talk\n\n---\nsource_file: `talk.mp4`\n---\n\n"


@dataclass(frozen=True)
class Built:
    """The first build, the unchanged update after it, and the store's counts."""

    build: Told
    update: Told
    stats: Told
    before: Held
    after: Held


def first_build(home: Path, vault: Path) -> Built:
    """Build, count, update with nothing changed, count again."""
    built = build(home, vault)
    with open_home(home) as library:
        before = held(library)
    updated = run(home, "update", "--dataset", DATASET)
    stats = run(home, "stats", "--dataset", DATASET)
    with open_home(home) as library:
        return Built(built, updated, stats, before, held(library))


def chunk_rows(built: Built, again: Held) -> Iterator[Row]:
    """11.1, but for the two checks that need files of their own."""
    files, rag = built.stats.answer["files"], load_settings(preset=PRESET).settings.rag_v2
    yield Row.of(
        "chunk coverage",
        share(files["indexed"], files["listed"]),
        "100 %",
        files["indexed"] == files["listed"],
        f"{built.after.documents} documents, {len(built.after.chunks)} chunks: "
        + ", ".join(f"{n} {name}" for name, n in built.stats.answer["modalities"].items()),
    )
    low, high = rag.chunk_min_size, rag.chunk_size
    whole: Counter[int] = Counter()
    for document, tokens in built.after.prose:
        whole[document] += tokens
    long = [tokens for document, tokens in built.after.prose if whole[document] >= low]
    inside = sum(low <= tokens <= high for tokens in long)
    text, short = len(built.after.prose), len(built.after.prose) - len(long)
    yield Row.of(
        f"chunk size {low}–{high} tokens",
        share(inside, len(long)),
        ">= 90 %",
        inside >= 0.9 * len(long),
        f"in the model's tokens; left out are {short} chunks of documents that are shorter than "
        f"{low} altogether (of all text chunks {inside / text:.1%} are in)",
    )
    yield Row.of(
        "determinism",
        "identical" if built.after.ids == again.ids else "different",
        "identical ids and order",
        built.after.ids == again.ids,
        f"{len(again.ids)} ids; the second build from a copy of the vault, into another home",
    )


def timecode_row() -> Row:
    """Every form of a time in converted Markdown, read from a file."""
    parsed = [form for form, text in TIMED_FORMS.items() if _times_of(form, text) == [10.0, 15.0]]
    absent = sorted(TIMED_FORMS.keys() - set(parsed))
    return Row.of(
        "video parsing support",
        share(len(parsed), len(TIMED_FORMS)),
        "100 %",
        not absent,
        f"not read: {', '.join(absent)}" if absent else ", ".join(TIMED_FORMS),
    )


def vector_rows(built: Built, dim: int) -> Iterator[Row]:
    """11.2, but for partial failure."""
    with_vector = {seq for seq, blob in built.after.windows if blob is not None}
    bare = {seq for seq, blob in built.after.windows if blob is None}
    whole = sum(chunk.seq in with_vector - bare for chunk in built.after.chunks)
    chunks = len(built.after.chunks)
    yield Row.of(
        "vector coverage", share(whole, chunks), "100 %", whole == chunks,
        f"{len(built.after.windows)} windows: a long chunk has several; ours go to Qdrant, the "
        "seed's to sqlite-vec",
    )  # fmt: skip
    vectors = built.after.vectors()
    right = sum(vector.shape == (dim,) for vector in vectors)
    yield Row.of(
        "dimension", f"{share(right, len(vectors))} of {dim}", "100 % of the model's",
        right == len(vectors), "the seed's model has 768, bge-small-en-v1.5 has 384",
    )  # fmt: skip
    norms = np.array([np.linalg.norm(vector) for vector in vectors])
    unit = int(((norms >= 0.99) & (norms <= 1.01)).sum())
    yield Row.of(
        "L2 norm in [0.99, 1.01]", share(unit, len(vectors)), ">= 99.9 %",
        unit >= 0.999 * len(vectors), f"{norms.min():.6f} to {norms.max():.6f}",
    )  # fmt: skip
    added = built.after.document_vectors - built.before.document_vectors
    embedded = built.update.answer["embedded"]
    yield Row.of(
        "incremental idempotency", f"{embedded} embedded, {added} rows more", "0 new vectors",
        embedded == 0 and added == 0,
    )  # fmt: skip


def failure_row(folder: Path, model: EmbeddingModel, texts: Sequence[str]) -> Row:
    """One of the texts cannot be embedded: the others are, it is named, and later made good."""
    vault = folder / "failing"
    vault.mkdir()
    for number, text in enumerate(texts):
        word = POISON if number == 0 else ""
        (vault / f"{number:02}.md").write_text(f"# Note {number}\n\n{text} {word}\n")
    settings = load_settings(preset=PRESET, overrides={"home": folder / "failing-home"}).settings
    encoder = _Failing(model.encoder)
    with Library(settings, model=EmbeddingModel(encoder)) as library:
        report = Indexer(library).build(vault, DATASET)
        with library.database.read() as connection:
            named = manifest.incomplete_documents(connection, DATASET)
        encoder.fails = False
        repaired = Indexer(library).update(DATASET)
    expected = [chunk for ids in named.values() for chunk in ids]
    met = (
        report.documents == len(texts)
        and [one.path for one in report.failed] == ["00.md"]
        and list(named) == ["00.md"]
        and repaired.incomplete == 0
    )
    return Row.of(
        "partial failure", f"{report.documents - report.incomplete} of {len(texts)} whole",
        "goes on, names the failed", met,
        f"reported: {report.failed[0].path}: {report.failed[0].reason}; chunk ids "
        f"{', '.join(expected)}; the next update made {repaired.embedded} good",
    )  # fmt: skip


def full_text_row(built: Built) -> Row:
    """11.3: is every chunk in the FTS5 table, and nothing else."""
    seqs = {chunk.seq for chunk in built.after.chunks}
    return Row.of(
        "FTS coverage", share(len(seqs & built.after.full_text), len(seqs)), "100 %",
        seqs == built.after.full_text,
        "FTS5 is kept for phrases; the ranking of 'lexical' is BM25 over its own index",
    )  # fmt: skip


class _Failing:
    """The real encoder, but for texts with the poison in them."""

    def __init__(self, real: Any) -> None:
        self._real, self.fails = real, True
        self.model, self.fingerprint, self.dim = real.model, real.fingerprint, real.dim
        self.max_tokens, self.counter = real.max_tokens, real.counter

    def encode(self, texts: Sequence[str]) -> list[Any]:
        if self.fails and any(POISON in text for text in texts):
            raise ValueError("the model refuses this text")
        return list(self._real.encode(texts))


def _times_of(form: str, text: str) -> list[float | None]:
    is_frame = form.startswith("#")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "talk.md"
        path.write_text(text if is_frame else _TRANSCRIPT + text, encoding="utf-8")
        (document,) = read_file(path, path.name)
    if isinstance(document, ReadFailure):
        return []
    modality = "video_frame" if is_frame else "video_transcript"
    return [one.time_start for one in document.segments if one.modality == modality]
