"""Notebooks, web pages, transcripts and Markdown made to hang, mislead or swell their reader."""

import json
from collections.abc import Iterable, Sequence
from typing import Any


def notebook(cells: Iterable[dict[str, Any]], **fields: Any) -> bytes:
    """A notebook of the present version, unless ``fields`` say otherwise."""
    return json.dumps(
        {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells), **fields}
    ).encode()


def prose(source: str) -> dict[str, Any]:
    """A cell of Markdown."""
    return {"cell_type": "markdown", "id": "a", "metadata": {}, "source": source}


def printing(text: str) -> dict[str, Any]:
    """A cell of code that printed ``text``."""
    output = {"output_type": "stream", "name": "stdout", "text": text}
    return {
        "cell_type": "code", "id": "b", "metadata": {}, "source": "print(it)",
        "execution_count": 1, "outputs": [output],
    }  # fmt: skip


def nested(opening: str, closing: str, depth: int, inner: str) -> str:
    """``inner`` inside ``depth`` pairs."""
    return opening * depth + inner + closing * depth


def clock(seconds: int) -> str:
    """``HH:MM:SS,000`` as subtitles have it."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d},000"


def srt(cues: Sequence[tuple[str, str, str]], *, end: str = "\n", gap: str = "\n") -> bytes:
    """Subtitles of (start, end, text)."""
    blocks = (
        f"{number}{end}{start} --> {until}{end}{text}{end}"
        for number, (start, until, text) in enumerate(cues, 1)
    )
    return gap.join(blocks).encode()


def many_cues(count: int) -> bytes:
    """As many cues of two seconds, one every two seconds."""
    return srt([(clock(2 * at), clock(2 * at + 2), f"words {at}") for at in range(count)])
