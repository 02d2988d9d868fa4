"""The vault of the evaluation protocol: papers, documentation and videos, as files.

Papers are SciFact abstracts, documentation is sections of anthropic-docs, videos are those of
TutorialVQA. Which ones is decided by sorted ids and a fixed seed, so that every run has the same.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from formats import frame, subtitles, written
from videos import Video, read_videos, rows_of, slug

from catalog.evaluation.golden import GoldenQuery
from catalog.evaluation.label_files import read_labels

SEED = 20261122
PAPERS, SECTIONS = 150, 100
CLAIMS, QUESTIONS = 60, 40  # semantic queries of either collection
PAPER_FORMATS = ("md", "txt", "html")
SECTION_FORMATS = ("md", "html", "docx", "pdf", "ipynb")
LONG_AGO = 1_600_000_000  # every file's time, so that no run meets a file changed just now
TOPICS = (
    "cancer", "cell", "brain", "dna", "protein", "risk", "mice", "immune", "gene", "stem",
    "insulin", "heart", "virus", "bone", "diet", "sleep", "drug", "infection",
)  # fmt: skip


@dataclass(frozen=True)
class Page:
    """One written document: ``source`` is its id in the collection it is from."""

    path: str
    source: str
    title: str
    text: str
    tags: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Its extension."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class Corpus:
    """What is written and what is known of it; queries name documents by their path."""

    papers: tuple[Page, ...]
    sections: tuple[Page, ...]
    videos: tuple[Video, ...]
    claims: tuple[GoldenQuery, ...]
    questions: tuple[GoldenQuery, ...]

    @property
    def pages(self) -> tuple[Page, ...]:
        """Papers and sections."""
        return self.papers + self.sections

    def texts(self) -> dict[str, str]:
        """What each document says, by path."""
        videos = {video.path: " ".join(video.sentences) for video in self.videos}
        frames = {
            video.frame_path(second): ", ".join(names)
            for video in self.videos
            for second, names in video.frames()
        }
        return {page.path: f"{page.title}\n{page.text}" for page in self.pages} | videos | frames


def read_corpus(data: Path) -> Corpus:
    """The vault's contents from the collections in a folder."""
    papers, claims = _pages(data / "scifact", "papers", PAPERS, CLAIMS, PAPER_FORMATS)
    sections, questions = _pages(
        data / "anthropic-docs", "docs", SECTIONS, QUESTIONS, SECTION_FORMATS
    )
    return Corpus(papers, sections, tuple(read_videos(data / "tutorialvqa")), claims, questions)


def write_vault(corpus: Corpus, folder: Path) -> None:
    """Every document as a file; the folder is new."""
    for page in corpus.pages:
        paragraphs = [" ".join(one.split()) for one in re.split(r"\n\s*\n", page.text)]
        filled = [one for one in paragraphs if one and one != page.title]
        _write(folder / page.path, written(page.path, page.title, filled, page.tags))
    for video in corpus.videos:
        _write(folder / video.path, subtitles(video.cues))
        for second, names in video.frames():
            _write(folder / video.frame_path(second), frame(video.name, second, names))


def sampled(items: Iterable[Any], count: int) -> list[Any]:
    """So many of them, in their order; always the same ones."""
    listed = list(items)
    if len(listed) <= count:
        return listed
    kept = sorted(random.Random(SEED).sample(range(len(listed)), count))
    return [listed[number] for number in kept]


def _pages(
    folder: Path, place: str, count: int, asked: int, formats: Sequence[str]
) -> tuple[tuple[Page, ...], tuple[GoldenQuery, ...]]:
    """Sampled test queries, the documents that answer them, and others up to ``count``."""
    rows = {row["_id"]: row for row in rows_of(folder / "corpus.jsonl")}
    beir, _ = read_labels(folder / "qrels" / "test.tsv", folder / "queries.jsonl")
    by_id = sorted(beir.answerable, key=lambda query: query.id)
    queries = sampled(by_id, asked)
    chosen = {source for query in queries for source in query.relevant}
    fill = sampled((one for one in sorted(rows) if one not in chosen), count - len(chosen))
    pages = {
        source: _page(rows[source], place, number, formats)
        for number, source in enumerate(sorted({*chosen, *fill}))
    }
    labelled = (_relabelled(query, pages, place) for query in queries)
    return tuple(pages.values()), tuple(labelled)


def _page(row: Mapping[str, str], place: str, number: int, formats: Sequence[str]) -> Page:
    title = " ".join(row["title"].split()) or row["_id"]
    kind = formats[number % len(formats)]
    source = row["_id"]
    if source.startswith("https:"):
        area = urlsplit(source).path.split("/")[3]
        path = f"{place}/{number:03}-{slug(title)}.{kind}"
        return Page(path, source, title, row["text"].strip(), (area,))
    tags = tuple(one for one in TOPICS if one in re.findall(r"[a-z]+", title.casefold()))
    return Page(f"{place}/{source}.{kind}", source, title, row["text"].strip(), tags)


def _relabelled(query: GoldenQuery, pages: Mapping[str, Page], place: str) -> GoldenQuery:
    expected = [
        one.model_copy(update={"path": pages[one.path].path})
        for one in query.expected
        if one.path in pages
    ]
    values = {"id": f"{place}-{query.id}", "kind": "semantic", "expected": tuple(expected)}
    return query.model_copy(update=values)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (LONG_AGO, LONG_AGO))
