"""The labelled queries of the evaluation protocol, of four kinds.

metadata  documents asked for by words of their title: papers and videos without a filter, sections
          with the filter ``file_type`` or ``tags``. The words are the rarest four of the title in
          the order they stand there; relevant are the documents with that title that the filter
          lets through.
semantic  SciFact's test claims and anthropic-docs' questions, as their collections label them.
exact     codes, identifiers and acronyms (a digit and a letter, an underscore, two capitals after a
          small letter, or nothing but three capitals or more; 3 to 20 characters) that
          one to three documents hold, in whatever case; relevant: those.
temporal  TutorialVQA's test questions, each with the seconds of the segments that answer it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from corpus import Corpus, Page, sampled

from catalog.evaluation.golden import Expected, GoldenQuery, GoldenSet
from catalog.evaluation.label_files import read_labels

ASKED_BY_TITLE = 10  # queries of each of the four sorts
EXACT = 50
_WORD = re.compile(r"[a-z0-9]+")
_TOKEN = re.compile(r"[A-Za-z0-9][\w-]*[A-Za-z0-9]")
_CODE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])|_|[a-z][A-Z]{2}|^[A-Z]{3,}$")


@dataclass(frozen=True)
class Moment:
    """A question about one video: ``spans`` are the seconds that answer it."""

    text: str
    path: str
    spans: tuple[tuple[float, float], ...]


def text_queries(corpus: Corpus) -> GoldenSet:
    """Metadata, semantic and exact queries."""
    semantic = corpus.claims + corpus.questions
    return GoldenSet("vault", (*_metadata(corpus), *semantic, *_exact(corpus.texts())))


def moments(corpus: Corpus, folder: Path, count: int) -> list[Moment]:
    """So many test questions about the videos."""
    videos = {video.id: video for video in corpus.videos}
    asked = []
    beir, _ = read_labels(folder / "qrels" / "test.tsv", folder / "queries.jsonl")
    for query in sampled(sorted(beir, key=lambda query: query.id), count):
        labels = [label.split("#") for label in query.relevant]
        video = videos[labels[0][0]]
        assert all(name == video.id for name, _ in labels), "a question is about one video"
        segments = (video.segments[int(number)] for _, number in labels)
        spans = tuple((start, end) for _, _, start, end in segments)
        asked.append(Moment(query.query, video.path, spans))
    return asked


def _metadata(corpus: Corpus) -> Iterator[GoldenQuery]:
    titles = {page.path: page.title for page in corpus.pages}
    titles |= {video.path: video.title for video in corpus.videos}
    common = Counter(word for title in titles.values() for word in set(_words(title)))

    def query(path: str, filters: dict[str, str] | None, among: Mapping[str, str]) -> GoldenQuery:
        words = list(dict.fromkeys(_words(titles[path])))
        rare = sorted(words, key=lambda word: (common[word], -len(word), word))[:4]
        same = [other for other, title in among.items() if title == titles[path]]
        return GoldenQuery(
            id=f"metadata-{'-'.join(filters or ['title'])}-{path}",
            query=" ".join(word for word in words if word in rare),
            kind="metadata",
            filters=filters,
            expected=tuple(Expected(path=other) for other in same),
        )

    videos = (video.path for video in corpus.videos)
    for group in ((page.path for page in corpus.papers), videos):
        for path in sampled(group, ASKED_BY_TITLE):
            yield query(path, None, titles)
    for page in sampled(corpus.sections, ASKED_BY_TITLE):
        same = [one for one in corpus.pages if one.kind == page.kind]
        yield query(page.path, {"file_type": page.kind}, _titles(same))
    tagged = [page for page in corpus.sections if page.tags]
    for page in sampled(reversed(tagged), ASKED_BY_TITLE):
        same = [one for one in corpus.pages if page.tags[0] in one.tags]
        yield query(page.path, {"tags": page.tags[0]}, _titles(same))


def _exact(texts: Mapping[str, str]) -> Iterator[GoldenQuery]:
    holding: dict[str, set[str]] = defaultdict(set)
    written: dict[str, str] = {}
    for path, text in sorted(texts.items()):
        for token in _TOKEN.findall(text):
            holding[token.casefold()].add(path)
            if 2 < len(token) <= 20 and _CODE.search(token):
                written.setdefault(token.casefold(), token)
    rare = (token for name, token in sorted(written.items()) if len(holding[name]) <= 3)
    for token in sampled(rare, EXACT):
        expected = tuple(Expected(path=path) for path in sorted(holding[token.casefold()]))
        yield GoldenQuery(id=f"exact-{token}", query=token, kind="exact", expected=expected)


def _titles(pages: list[Page]) -> dict[str, str]:
    return {page.path: page.title for page in pages}


def _words(title: str) -> list[str]:
    return _WORD.findall(title.casefold())
