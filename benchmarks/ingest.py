"""What indexing costs beside the bare embedding model, by the length of passages, on real text.

    python benchmarks/ingest.py                      # over this project's docs
    python benchmarks/ingest.py ../shared/data/scifact/corpus.jsonl --words 20 200 500

Cuts a BEIR corpus, or the Markdown files of a folder, into records of so many words. Embeds them
with the model alone, a text that is too long for it in as few windows as hold all of it, then
builds a store from the same records, in turns. Prints tokens a second of both by the clock, how
many more of them the build has the model read (where a passage stands, what neighbours share), and
how much longer it takes: by the clock and in CPU time of all threads, which a busy machine bends
less. ``own/model`` is the CPU time of a build outside the model's calls beside that in them, within
one and the same build; the same in milliseconds a record. Then seconds of CPU: of an update with
nothing changed, of one with one record changed, and of the model alone for this record.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catalog.core.settings import load_settings
from catalog.embedding import get_model
from catalog.embedding.model import EmbeddingModel
from catalog.embedding.windows import SPECIAL_TOKENS
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from step import conditions

CHANGED = "zanzibar"  # a word that a record gets


def main() -> None:
    options = _arguments()
    words = _words(options.corpus)
    model = get_model(load_settings(preset=options.preset).settings.embedding)
    model.embed(["warm up"])
    print(conditions())
    print(
        "words  records  model tokens/s  build tokens/s  read more  build/model  build/model, CPU"
        "  own/model  own ms a record  unchanged  one changed  model for it"
    )
    for length in options.words:
        count = min(options.total // length, len(words) // length)
        texts = [" ".join(words[at * length : (at + 1) * length]) for at in range(count)]
        windows = [window for text in texts for window in model.windows(text)]
        turns = []
        for _ in range(options.turns):
            bare = _timed(lambda windows=windows: model.embed(windows))
            changed = model.windows(f"{CHANGED} {texts[0]}")
            _, of_one = _timed(lambda changed=changed: model.embed(changed))
            built, read = _build(texts, options.preset)
            turns.append((*bare, *built, of_one))
        tokens, more = _count(model, windows), _count(model, read) / _count(model, windows) - 1
        bare, bare_cpu, whole, whole_cpu, own, share, none, one, of_one = map(
            statistics.median, zip(*turns, strict=True)
        )
        print(
            f"{length:5}  {count:7}  {tokens / bare:14,.0f}  {tokens / whole:14,.0f}"
            f"  {more:9.1%}  {whole / bare:11.2f}  {whole_cpu / bare_cpu:16.2f}"
            f"  {share:9.1%}  {1000 * own / count:15.2f}"
            f"  {none:9.3f}  {one:11.3f}  {of_one:12.3f}",
            flush=True,
        )


def _words(corpus: Path) -> list[str]:
    """Return the words of a BEIR corpus, or of the Markdown files of a folder."""
    if corpus.is_dir():
        files = sorted(corpus.rglob("*.md"))
        return [word for file in files for word in file.read_text(encoding="utf-8").split()]
    rows = map(json.loads, corpus.read_text(encoding="utf-8").splitlines())
    return [word for row in rows for word in f"{row['title']} {row['text']}".split()]


def _count(model: EmbeddingModel, texts: list[str]) -> int:
    """Count the tokens that the model reads of these texts, special ones included."""
    return sum(len(model.encoder.counter.spans(text)) + SPECIAL_TOKENS for text in texts)


def _build(texts: list[str], preset: str | None) -> tuple[tuple[float, ...], list[str]]:
    """Build a store of these records and update it; return times, and what was embedded for it.

    Seconds of the build by the clock and of CPU, those outside the model's calls and their share
    of these, then of CPU with nothing and one record changed.
    """
    records = [{"_id": str(number), "title": "", "text": text} for number, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus.jsonl"
        corpus.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
        overrides = {"home": Path(scratch) / "home"}
        settings = load_settings(preset=preset, overrides=overrides).settings
        with Library(settings) as library:
            library.model.embed(["warm up"])
            calls, texts_read = _watch_calls(library.model)
            built = _timed(lambda: Indexer(library).build(corpus, "bench"))
            read, in_calls = list(texts_read), sum(calls)
            own = built[1] - in_calls
            _, unchanged = _timed(lambda: Indexer(library).update("bench"))
            records[0]["text"] = f"{CHANGED} {texts[0]}"
            corpus.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
            _, one_changed = _timed(lambda: Indexer(library).update("bench"))
            return (*built, own, own / in_calls, unchanged, one_changed), read


def _watch_calls(model: EmbeddingModel) -> tuple[list[float], list[str]]:
    """Return lists that get the seconds of CPU of each call of the model, and what it reads."""
    encode, seconds, read = model.encoder.encode, [], []

    def watched(texts: Sequence[str]) -> list[Any]:
        started = time.process_time()
        vectors = encode(texts)
        seconds.append(time.process_time() - started)
        read.extend(texts)
        return vectors

    vars(model.encoder)["encode"] = watched
    return seconds, read


def _timed(act: Callable[[], object]) -> tuple[float, float]:
    started, cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - started, time.process_time() - cpu


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    docs = Path(__file__).parents[1] / "docs"
    parser.add_argument("corpus", type=Path, nargs="?", default=docs)
    parser.add_argument("--words", type=int, nargs="+", default=[20, 200, 500], help="in a record")
    parser.add_argument("--total", type=int, default=30_000, help="words in all, for each length")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--preset", help="settings of that name in configs/")
    return parser.parse_args()


if __name__ == "__main__":
    main()
