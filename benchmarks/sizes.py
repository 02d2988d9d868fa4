"""How many passages lie within their preset's band of sizes, on a folder of real files.

    python benchmarks/sizes.py /usr/share/doc [--files 2000]

Reads and cuts the files as an index build does, with the packaged model's tokenizer, and prints for
the presets with a band the share of passages within it, by format. Documents shorter than the
band in all are counted apart: no cut could bring them into it.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.core.settings import load_settings
from catalog.embedding import get_model
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.discovery import discover
from catalog.ingest.readers import ReadFailure, read_file

PRESETS = ("vault", "projects")


@dataclass
class Counts:
    """Passages of text, those within the band, and those of documents shorter than it."""

    passages: int = 0
    inside: int = 0
    short: int = 0


def main() -> None:
    """Print one line for each format and preset."""
    options = _arguments()
    settings = load_settings(overrides={"embedding": {"offline": True}}).settings
    counter = get_model(settings.embedding).encoder.counter
    counts: dict[tuple[str, str], Counts] = defaultdict(Counts)
    bands = {name: load_settings(preset=name).settings.rag_v2 for name in PRESETS}
    documents = 0
    for document in _documents(options.folder, options.files):
        documents += 1
        for name, rag in bands.items():
            chunker = DocumentChunker(
                counter,
                chunk_size=rag.chunk_size,
                chunk_overlap=rag.chunk_overlap,
                min_size=rag.chunk_min_size,
            )
            sizes = [span.tokens for span in chunker.cut(document).spans if span.modality == "text"]
            for key in ((name, document.file_type), (name, "all")):
                one = counts[key]
                if sum(sizes) < rag.chunk_min_size:
                    one.short += len(sizes)
                    continue
                one.passages += len(sizes)
                one.inside += sum(rag.chunk_min_size <= size <= rag.chunk_size for size in sizes)
    print(f"{documents} documents of {options.folder}")
    for (name, kind), one in sorted(
        counts.items(), key=lambda item: (item[0][0], item[1].passages)
    ):
        if one.passages:
            rag = bands[name]
            print(
                f"{name} {rag.chunk_min_size}-{rag.chunk_size}  {kind:10} "
                f"{one.inside / one.passages:7.2%} of {one.passages} passages; "
                f"{one.short} of shorter documents apart"
            )


def _documents(folder: Path, most: int) -> Iterator[ParsedDocument]:
    listing = discover(folder)
    step = max(1, len(listing.files) // most)
    for file in listing.files[::step][:most]:
        try:
            for item in read_file(file.absolute, file.path, root=listing.top):
                if not isinstance(item, ReadFailure):
                    yield item
        except ReadError:
            continue


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=2000, help="at most, evenly taken")
    return parser.parse_args()


if __name__ == "__main__":
    main()
