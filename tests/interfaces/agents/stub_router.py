"""A router that knows only what an agent is given: guidance, descriptions, and the prompt.

It reads the sentence in which the guidance says what a tool is for, and what else the guidance says
a file is called. Of each part of that sentence it takes the words that say something, and every two
or three that follow one another. The tool that has so most words of the prompt is chosen; of two
that have as many, the one whose description shares most words with the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_RULE = re.compile(r"^- [^:\n]*: (\w+)\. (It .*)$", re.MULTILINE)
_ALSO = re.compile(r"^- For files people also say (.*)\.$", re.MULTILINE)
_DOUBT = re.compile(r"^- In doubt: (\w+)\.$", re.MULTILINE)
_PART = re.compile(r"[,:;.]| and | or ")
_FILE_NAME = re.compile(r"[\w-]+\.[a-z][a-z0-9]{1,4}\b")
_WORD = re.compile(r"[\w']+")
_FILLING = frozenset(["a", "an", "any", "me", "my", "of", "our", "please", "some", "the", "your"])
_SAYING_LITTLE_TEXT = """
    it tell answer or is and the by its can say on when was in of which has this there are
    we what would with a to do be people person something did thing many word one
"""
_SAYING_LITTLE = frozenset(_SAYING_LITTLE_TEXT.split())
_FILE = "file"


@dataclass(frozen=True)
class StubRouter:
    """``cues`` are words that follow one another in what a tool is said to be for."""

    cues: Mapping[str, Sequence[Sequence[str]]]
    described: Mapping[str, frozenset[str]]
    files: frozenset[str]
    doubt: str

    @classmethod
    def of(cls, guidance: str, descriptions: Mapping[str, str]) -> StubRouter:
        """The router that has read these; in doubt, without guidance, it takes the first tool."""
        also, doubt = _ALSO.search(guidance), _DOUBT.search(guidance)
        files = frozenset(_words(also[1])) if also else frozenset()
        cues: dict[str, list[list[str]]] = {name: [] for name in descriptions}
        for rule in _RULE.finditer(guidance):
            for part in _PART.split(rule[2]):
                cues[rule[1]] += _cues(_as_files(_words(part), files))
        described = {name: frozenset(_words(text)) for name, text in descriptions.items()}
        return cls(cues, described, files, doubt[1] if doubt else next(iter(descriptions)))

    def choose(self, prompt: str) -> str:
        """The tool to call."""
        words = _as_files(_words(_FILE_NAME.sub(_FILE, prompt.casefold())), self.files)

        def worth(tool: str) -> tuple[int, int, bool]:
            covered = {at for cue in self.cues[tool] for at in _covered(words, cue)}
            shared = self.described[tool] & set(words)
            return len(covered), len(shared), tool == self.doubt

        return max(self.cues, key=worth)


def _cues(words: Sequence[str]) -> list[list[str]]:
    """The words of a part that say something alone, and its runs of two or three that do."""
    cues = [[word] for word in words if word not in _SAYING_LITTLE | {_FILE, "how"}]
    for length in (2, 3):
        runs = [list(words[at : at + length]) for at in range(len(words) - length + 1)]
        cues += [
            run
            for run in runs
            if not _SAYING_LITTLE.issuperset(run)
            and not (run[0] in _SAYING_LITTLE and run[1:] == [_FILE])
        ]
    return cues


def _words(text: str) -> list[str]:
    found = (word for word in _WORD.findall(text.casefold()) if word not in _FILLING)
    return [word[:-1] if len(word) > 3 and word[-1] == "s" != word[-2] else word for word in found]


def _as_files(words: Sequence[str], files: frozenset[str]) -> list[str]:
    """The words with ``file`` for every run of words that a file is called by."""
    named = [_FILE if word in files else word for word in words]
    befores = [None, *named]
    return [
        word for word, before in zip(named, befores, strict=False) if not word == before == _FILE
    ]


def _covered(words: Sequence[str], cue: Sequence[str]) -> set[int]:
    """Where the words of the cue stand, in order; one other word may stand between two of them."""
    covered: set[int] = set()
    for start, word in enumerate(words):
        if word != cue[0]:
            continue
        places = [start]
        for wanted in cue[1:]:
            following = places[-1] + 1
            near = words[following : following + 2]
            if wanted not in near:
                break
            places.append(following + near.index(wanted))
        else:
            covered.update(places)
    return covered
