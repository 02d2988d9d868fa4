"""Checks of what updates and rebuilds do: parity with a fresh build, cost, counts."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from builds import Built
from homes import DATASET, Held, Told, held, open_home, run
from rows import Row, share

from catalog.embedding.model import EmbeddingModel
from catalog.library.indexing import Indexer

MOST_OF_A_BUILD = 0.05


def change(vault: Path) -> str:
    """Edit, cut short, rename, delete and add files; in words what was done."""
    papers = sorted((vault / "papers").iterdir())
    texts = [path for path in papers if path.suffix in (".md", ".txt")]
    for path in texts[:3]:
        with path.open("a", encoding="utf-8") as file:
            file.write("\nThis sentence was added after the first build.\n")
    video = min((vault / "videos").glob("*.srt"))
    video.write_text(video.read_text(encoding="utf-8").rpartition("\n\n")[0], encoding="utf-8")
    texts[3].rename(texts[3].with_name(f"renamed-{texts[3].name}"))
    for path in papers[-5:]:
        path.unlink()
    for number in range(3):
        (vault / "docs" / f"new-{number}.md").write_text(f"# New {number}\n\nA new note.\n")
    return "3 edited, 1 transcript cut short, 1 renamed, 5 deleted, 3 added"


def parity_row(home: Path, fresh_home: Path, vault: Path) -> Row:
    """11.3: an update after changes against a fresh build of the same files.

    The fresh build cuts with the real tokenizer and embeds with random vectors: what is compared
    are ids, texts and full-text rows, which no vector decides.
    """
    done = change(vault)
    updated = run(home, "update", "--dataset", DATASET)
    with open_home(home) as library:
        after = held(library)
    with open_home(fresh_home) as library:
        random = EmbeddingModel(_Random(library.model.encoder))
    with open_home(fresh_home, random) as library:
        Indexer(library).build(vault, DATASET)
        fresh = held(library)
    stale, absent = set(after.ids) - set(fresh.ids), set(fresh.ids) - set(after.ids)
    same = after.texts == fresh.texts and after.full_text == {one.seq for one in after.chunks}
    bare = sum(blob is None for _, blob in after.windows)
    told = updated.answer
    return Row.of(
        "incremental sync", f"{len(stale)} stale, {len(absent)} absent", "0 stale ids",
        not stale and not absent and same and bare == 0,
        f"{done}; reported: {told['added']} added, {told['updated']} updated, "
        f"{told['removed']} removed, {told['embedded']} embedded, {told['unchanged']} unchanged",
    )  # fmt: skip


def command_rows(built: Built, other: Held, rebuilt: tuple[Told, Held]) -> list[Row]:
    """11.7; ``other`` is a second home's build, ``rebuilt`` that home after ``index rebuild``."""
    done = {"build": built.build, "update": built.update, "stats": built.stats}
    codes = {name: one.code for name, one in done.items()}
    works = sum(code == 0 for code in codes.values())
    whole, unchanged = (one.answer["seconds"] for one in (built.build, built.update))
    first, again, stats = built.after, rebuilt[1], built.stats.answer
    counted = {
        "documents": first.documents,
        "chunks": len(first.chunks),
        "windows": len(first.windows),
        "vectors": len(first.vectors()),
    }
    right = [name for name, count in counted.items() if stats[name] == count]
    by_modality: dict[str, int] = {}
    for chunk in first.chunks:
        by_modality[chunk.modality] = by_modality.get(chunk.modality, 0) + 1
    right += ["modalities"] if stats["modalities"] == by_modality else []
    counts = (first.documents, len(first.ids))
    same = first.ids == other.ids == again.ids and counts == (again.documents, len(again.ids))
    return [
        Row.of("command coverage", share(works, len(done)), "build, update, stats", works == 3),
        Row.of(
            "update efficiency", f"{unchanged / whole:.2%}", "<= 5 % of the build",
            unchanged <= MOST_OF_A_BUILD * whole and built.update.answer["unchanged"] > 0,
            f"{unchanged:.2f} s of {whole:.1f} s; of the commands' time, their start included, "
            f"{built.update.seconds / built.build.seconds:.1%} ({built.update.seconds:.1f} s of "
            f"{built.build.seconds:.1f} s)",
        ),
        Row.of(
            "stats accuracy", share(len(right), len(counted) + 1), "equal to the tables",
            len(right) == len(counted) + 1,
            ", ".join(f"{count:,} {name}" for name, count in counted.items()) + "; modalities",
        ),
        Row.of(
            "rebuild reproducibility", "identical" if same else "different",
            "identical ids and counts", same,
            f"two builds and 'catalog index rebuild': {counts[0]} documents, {counts[1]} chunks",
        ),
    ]  # fmt: skip


class _Random:
    """The real encoder's tokenizer and name, with vectors that cost nothing."""

    def __init__(self, real: Any) -> None:
        self.model, self.fingerprint, self.dim = real.model, real.fingerprint, real.dim
        self.max_tokens, self.counter = real.max_tokens, real.counter

    def encode(self, texts: Sequence[str]) -> list[Any]:
        made = []
        for text in texts:
            vector = np.random.default_rng(zlib.crc32(text.encode())).normal(size=self.dim)
            made.append((vector / np.linalg.norm(vector)).astype(np.float32))
        return made
