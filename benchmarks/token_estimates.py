"""Compare estimated sizes in tokens with those of a model's tokenizer: true tokens for each.

python benchmarks/token_estimates.py FILE …
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from catalog.core.settings import EmbeddingSettings
from catalog.core.tokens import CharTokenCounter, EstimatedTokenCounter
from catalog.embedding import get_encoder

CHARS = 1_500  # of a stretch: about what a window of 512 tokens holds
SHORTEST = 400
PERCENTILES = (50, 95, 99, 99.9)


def main(files: list[str]) -> None:
    """Print, for both estimates, how many true tokens there are to each one estimated."""
    tokenizer = get_encoder(EmbeddingSettings()).counter
    stretches = [part for file in files for part in _stretches(Path(file))]
    true = np.array([len(tokenizer.spans(part)) for part in stretches])
    print(f"{len(files)} files, {len(stretches)} stretches of {CHARS} characters at most")
    for counter in (CharTokenCounter(), EstimatedTokenCounter()):
        ratios = true / np.array([len(counter.spans(part)) for part in stretches])
        told = ", ".join(f"{at:g} %: {np.percentile(ratios, at):.2f}" for at in PERCENTILES)
        print(f"{counter.name:10} {told}; over 1 in {np.sum(ratios > 1)}")


def _stretches(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    parts = [text[start : start + CHARS] for start in range(0, len(text), CHARS)]
    return [part for part in parts if len(part) >= SHORTEST]


if __name__ == "__main__":
    main(sys.argv[1:])
