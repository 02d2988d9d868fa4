"""What indexing costs beside the bare embedding model, on real text.

    python benchmarks/ingest.py ../shared/data/scifact/corpus.jsonl --documents 300

Embeds the first documents of a BEIR corpus with the model alone (title and text, as one text
each), then builds a store from the same records, in turns, and prints seconds and the ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from catalog.core.settings import load_settings
from catalog.embedding import get_embed_model
from catalog.library.indexing import Indexer
from catalog.library.library import Library


def main() -> None:
    options = _arguments()
    lines = options.corpus.read_text(encoding="utf-8").splitlines()[: options.documents]
    texts = ["\n\n".join((row["title"], row["text"])) for row in map(json.loads, lines)]
    model = get_embed_model()
    model.embed(["warm up"])
    ratios = []
    for turn in range(options.turns):
        started = time.perf_counter()
        model.embed(texts)
        bare = time.perf_counter() - started
        whole = _build(lines)
        ratios.append(whole / bare)
        print(f"turn {turn + 1}: model {bare:.1f} s, build {whole:.1f} s, {whole / bare:.3f}")
    print(f"build / model, median of {options.turns}: {statistics.median(ratios):.3f}")


def _build(lines: list[str]) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus.jsonl"
        corpus.write_text("\n".join(lines), encoding="utf-8")
        settings = load_settings(overrides={"home": Path(scratch) / "home"}).settings
        with Library(settings) as library:
            library.model.embed(["warm up"])
            started = time.perf_counter()
            Indexer(library).build(corpus, "bench")
            return time.perf_counter() - started


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--turns", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
