"""The videos of the vault: when each sentence is spoken, and what frames are made of it.

Sentence times of a video: its labelled segments tell when some sentences begin and end; between
two such moments time passes evenly with the characters; before the first it begins at 0, after
the last it goes on at the mean rate of all segments. There are no pictures, so frames are made:
each tells the interface names (words with a capital inside a sentence) that are spoken around it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from formats import Cue, frame_name

FRAMED_VIDEOS, FRAME_SECONDS, AROUND = 25, 30, 15
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][A-Za-z]+(?: (?:[A-Z][A-Za-z]+|panel|tool|menu|bar))*")


@dataclass(frozen=True)
class Video:
    """A video's sentences and segments; times are seconds, spans of sentences inclusive."""

    id: str
    name: str
    title: str
    sentences: tuple[str, ...]
    segments: tuple[tuple[int, int, float, float], ...]
    rate: float
    is_framed: bool

    @property
    def path(self) -> str:
        """Of its subtitles."""
        return f"videos/{self.name}.srt"

    def frame_path(self, second: int) -> str:
        """Of the description of one of its frames."""
        return f"videos/{self.name}_frames/{frame_name(second)}.md"

    @cached_property
    def cues(self) -> tuple[Cue, ...]:
        """Every sentence with its times."""
        place = list(accumulate((len(one) + 1 for one in self.sentences), initial=0))
        known: dict[int, float] = {0: 0.0}  # moment 2n: sentence n begins, 2n + 1: it ends
        for first, last, start, end in self.segments:
            known[2 * first] = min(known.get(2 * first) or start, start)
            known[2 * last + 1] = max(known.get(2 * last + 1, end), end)
        moments = sorted(known)
        times = list(accumulate((known[moment] for moment in moments), max))
        told: list[float] = []
        for moment in range(2 * len(self.sentences)):
            at = bisect_right(moments, moment) - 1
            passed = place[(moment + 1) // 2] - place[(moments[at] + 1) // 2]
            rate = self.rate
            if at + 1 < len(moments) and times[at + 1] > times[at]:
                between = place[(moments[at + 1] + 1) // 2] - place[(moments[at] + 1) // 2]
                rate = between / (times[at + 1] - times[at])
            told.append(times[at] + (passed / rate if passed else 0.0))
        return tuple(zip(told[::2], told[1::2], self.sentences, strict=True))

    @property
    def end(self) -> float:
        """When its last sentence ends."""
        return self.cues[-1][1]

    def frames(self) -> Iterator[tuple[int, list[str]]]:
        """Seconds with the names around them, where there are any."""
        for second in range(FRAME_SECONDS, int(self.end), FRAME_SECONDS) if self.is_framed else ():
            near = [text for a, b, text in self.cues if a < second + AROUND and b > second - AROUND]
            names = list(dict.fromkeys(name for text in near for name in _NAME.findall(text)))
            if names:
                yield second, names


def read_videos(folder: Path) -> Iterator[Video]:
    """TutorialVQA's videos, by their ids."""
    told = json.loads((folder / "raw" / "videos.json").read_text(encoding="utf-8"))
    texts = {row["_id"]: row["text"] for row in rows_of(folder / "corpus.jsonl")}
    spoken = seconds = 0.0
    read = []
    for row in sorted(told, key=lambda row: row["video_id"]):
        segments = []
        for number, one in enumerate(row["segments"]):
            first, last = (int(one["sentence_indexes"][end]) for end in ("start", "end"))
            start, end = (float(one["timestamps"][at]) for at in ("start", "end"))
            text = " ".join(row["transcript"][first : last + 1])
            assert text == texts[f"{row['video_id']}#{number}"], "sentence indexes mean otherwise"
            segments.append((first, last, start, end))
            spoken, seconds = spoken + len(text) + 1, seconds + end - start
        read.append((row, tuple(segments)))
    for number, (row, its_segments) in enumerate(read):
        yield Video(
            id=row["video_id"],
            name=slug(row["video_title"]),
            title=row["video_title"],
            sentences=tuple(" ".join(one.split()) for one in row["transcript"]),
            segments=its_segments,
            rate=spoken / seconds,
            is_framed=number < FRAMED_VIDEOS,
        )


def slug(title: str) -> str:
    """A title as a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", title.casefold()).strip("-")[:60].strip("-")


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """The objects of a JSON Lines file."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line:
            yield json.loads(line)
