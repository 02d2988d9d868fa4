"""What indexing costs beside the bare embedding model, by the length of passages, on real text.

    python benchmarks/ingest.py ../shared/data/scifact/corpus.jsonl --words 20 200 500

Cuts a BEIR corpus into records of so many words. Embeds them with the model alone, then builds a
store from the same records, in turns, and prints tokens a second of both by the clock, and how
much longer the build takes: by the clock and in CPU time, which a busy machine bends less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from catalog.core.settings import load_settings
from catalog.embedding import get_embed_model
from catalog.library.indexing import Indexer
from catalog.library.library import Library


def main() -> None:
    options = _arguments()
    rows = map(json.loads, options.corpus.read_text(encoding="utf-8").splitlines())
    words = [word for row in rows for word in f"{row['title']} {row['text']}".split()]
    model = get_embed_model(load_settings(preset=options.preset).settings.embedding)
    model.embed(["warm up"])
    print("words  records  model tokens/s  build tokens/s  build/model  build/model, CPU")
    for length in options.words:
        count = min(options.total // length, len(words) // length)
        texts = [" ".join(words[at * length : (at + 1) * length]) for at in range(count)]
        tokens = sum(len(model.encoder.counter.spans(text)) for text in texts)
        turns = [
            (*_timed(lambda texts=texts: model.embed(texts)), *_build(texts, options.preset))
            for _ in range(options.turns)
        ]
        bare, bare_cpu, whole, whole_cpu = map(statistics.median, zip(*turns, strict=True))
        print(
            f"{length:5}  {count:7}  {tokens / bare:14,.0f}  {tokens / whole:14,.0f}"
            f"  {whole / bare:11.2f}  {whole_cpu / bare_cpu:16.2f}",
            flush=True,
        )


def _build(texts: list[str], preset: str | None) -> tuple[float, float]:
    """Build a store of these records; return seconds by the clock and of CPU."""
    records = [{"_id": str(number), "title": "", "text": text} for number, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus.jsonl"
        corpus.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
        overrides = {"home": Path(scratch) / "home"}
        settings = load_settings(preset=preset, overrides=overrides).settings
        with Library(settings) as library:
            library.model.embed(["warm up"])
            return _timed(lambda: Indexer(library).build(corpus, "bench"))


def _timed(act: Callable[[], object]) -> tuple[float, float]:
    started, cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - started, time.process_time() - cpu


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--words", type=int, nargs="+", default=[20, 200, 500], help="in a record")
    parser.add_argument("--total", type=int, default=30_000, help="words in all, for each length")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--preset", help="settings of that name in configs/")
    return parser.parse_args()


if __name__ == "__main__":
    main()
