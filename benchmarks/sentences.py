"""Compare libraries that find where sentences end, on hard texts: how many are right, how fast.

    python benchmarks/sentences.py

Those that are not installed are left out: ``pip install syntok pysbd nupunkt``. The texts are
``tests/ingest/sentences.toml``. Each library is told the language; ours tells it from the text.
"""

from __future__ import annotations

import time
import tomllib
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from catalog.ingest.chunking.boundaries import sentence_spans

TEXTS = Path(__file__).parent.parent / "tests" / "ingest" / "sentences.toml"
Cut = Callable[[str, str], list[str]]


def ours(_language: str, text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


def alone(language: str, text: str) -> list[str]:
    from sentencex import segment

    return [one.strip() for one in segment(language, text) if one.strip()]


def syntok(_language: str, text: str) -> list[str]:
    from syntok import segmenter

    found = [one for paragraph in segmenter.process(text) for one in paragraph]
    return [text[one[0].offset : one[-1].offset + len(one[-1].value)] for one in found]


def pysbd(language: str, text: str) -> list[str]:
    from pysbd import Segmenter
    from pysbd.languages import LANGUAGE_CODES

    known = language if language in LANGUAGE_CODES else "en"
    found = Segmenter(language=known, clean=False, char_span=True).segment(text)
    return [one.sent.strip() for one in found]


def nupunkt(_language: str, text: str) -> list[str]:
    from nupunkt import sent_tokenize

    return [one.strip() for one in sent_tokenize(text)]


def main() -> None:
    """Print the right texts and the megabytes a second of each library that is installed."""
    warnings.simplefilter("ignore")
    tables = tomllib.loads(TEXTS.read_text(encoding="utf-8"))
    cases = [
        (language, ("" if language in ("ja", "zh") else " ").join(sentences), sentences)
        for table in (tables["right"], tables["wrong"])
        for language, rows in table.items()
        for sentences in rows
    ]
    cutters: list[Cut] = [ours, alone, syntok, pysbd, nupunkt]
    for cut in cutters:
        with suppress(ModuleNotFoundError):
            right = sum(cut(language, text) == sentences for language, text, sentences in cases)
            long = [(language, " ".join([text] * 30)[:2000]) for language, text, _ in cases]
            begun = time.process_time()
            for language, text in long:
                cut(language, text)
            size = sum(len(text.encode()) for _, text in long) / 1e6
            speed = size / (time.process_time() - begun)
            print(f"{cut.__name__:8} {right:3} of {len(cases)} right, {speed:6.2f} MB a second")


if __name__ == "__main__":
    main()
