"""The sentences of a document that are prose: without markup, headings, code, tables and times.

Of a long text the beginning and evenly spaced pieces are read, so that the time does not grow
with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from catalog.ingest.chunking.sentences import END_MARK, sentence_spans
from catalog.store.lexical.words import UNSPACED

HEAD_CHARS = 9_000
PIECES, PIECE_CHARS = 30, 400
_LONGEST = 700  # characters of a sentence; what is longer is a list or a table in disguise
_LONGEST_HEADING = 200
_FEWEST_WORDS = 4
_FEWEST_SIGNS = 8  # of a script without spaces
_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FENCE = re.compile(r"\s{0,3}(?:```|~~~)")
_RULE = re.compile(r"\s*([-=~^*_+\"'`.#:])(?:[ \t]*\1){2,}\s*\Z")
_ITEM = re.compile(r"\s*(?:[-*+•–▪]|\d{1,3}[.)]|#\.)\s+")
_TIME = r"(?:\d{1,2}:)?\d{1,2}:\d\d(?:[.,]\d{1,3})?"
_TIMES = re.compile(rf"\s*[\[(]?{_TIME}[\])]?(?:\s*(?:-->|--?|[–—,])\s*[\[(]?{_TIME}[\])]?.*)?\s*")
_LEADING_TIME = re.compile(rf"\s*[\[(]?{_TIME}(?:\s*[-–—]+\s*{_TIME})?[\])]?\s*[-–—:|]?\s+(?=\S)")
_CUE_NUMBER = re.compile(r"\s*(?:WEBVTT.*|NOTE\b.*|\d+|[\w-]+/\d+-\d+)\s*")
_VOICE = re.compile(r"</?[A-Za-z][^<>\n]{0,300}>")
_SKIPPED = re.compile(
    r"""\s*(?:
        \#{1,6}\s                       # heading
      | \d+(?:\.\d+)+\.?\s.{0,100}\Z    # numbered heading
      | \|                              # table
      | \.\.\s|:[\w-]{1,40}:(?:\s|\Z)   # reStructuredText directive, field
      | <!--|<\?|<!|\[[^\]]{1,200}\]:\s # comment, declaration, link definition
      | (?:[-*+•]\s+|\d+[.)]\s+)?(?:!?\[[^\]]*\]\([^)]*\)[\s,;|·•]*)+\Z     # only links
      | (?:[-*+•]\s+)?(?:https?://|www\.)\S+\s*\Z
      | \$\s|>>>|\.\.\.\s               # a session at a prompt
    )""",
    re.VERBOSE,
)
_BOILERPLATE = (
    "©", "copyright 1", "copyright 2", "copyright (c)", "all rights reserved", "we use cookies",
    "accept cookies", "uses cookies", "subscribe to ", "sign up for ", "click here", "skip to ",
    "table of contents",
)  # fmt: skip
_CODE = ("{", "}", " = ", "==", "=>", "().", "();", "/>")
_IMAGE = re.compile(r"!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])")
_LINK = re.compile(r"\[([^\[\]]*)\](?:\([^()\s]*(?:\s[^()]*)?\)|\[[^\[\]]*\])")
_ROLE = re.compile(r":[a-z][\w:+-]{0,30}:(?=`)")
_EMPHASIS = re.compile(r"\*{1,3}(?=\S)|(?<=\S)\*{1,3}|`+|(?<!\w)__?(?=\w)|(?<=[\w`])__?(?!\w)")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_SIGN = re.compile(r"[^\w\s]|\d")


def prose_sentences(text: str, headings: Collection[str] = ()) -> tuple[list[str], str]:
    """The sentences worth showing, each once and in order, and the plain text they are from.

    A line that is one of the ``headings`` is none of the text. Both are without markup, every
    run of white space one space; the plain text is at most about ``HEAD_CHARS`` characters and
    tells what the document says where it has no whole sentence.
    """
    without = {_folded(heading) for heading in headings}
    sentences: dict[str, str] = {}
    plain: list[str] = []
    for piece, is_first in _pieces(text):
        for paragraph in _paragraphs(piece, without):
            clean = _without_markup(paragraph)
            for start, end in sentence_spans(clean):
                sentence = clean[start:end]
                folded = sentence.casefold()
                if folded not in sentences and _is_prose(sentence, folded):
                    sentences[folded] = sentence
            if is_first:
                plain.append(clean)
    return list(sentences.values()), " ".join(dict.fromkeys(filter(None, plain)))


def first_lines(text: str, max_chars: int) -> str:
    """What stands first in the text, each line once, as one line; fences are left out."""
    first = text[_body(text) :][:max_chars].splitlines()
    lines = (" ".join(line.split()) for line in first if not _FENCE.match(line))
    return " ".join(dict.fromkeys(filter(None, lines)))


def _body(text: str) -> int:
    """Where the text begins, after front matter."""
    front = _FRONT_MATTER.match(text)
    return front.end() if front else 0


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """The text, or its beginning and pieces of the rest; each with whether it is the first."""
    begin = _body(text)
    if len(text) - begin <= HEAD_CHARS + PIECES * PIECE_CHARS:
        yield text[begin:], True
        return
    yield text[begin : begin + HEAD_CHARS], True
    step = (len(text) - begin - HEAD_CHARS) / PIECES
    for number in range(PIECES):
        start = begin + HEAD_CHARS + int(number * step)
        piece = text[start : start + PIECE_CHARS]
        first = next((end for _, end in sentence_spans(piece)), len(piece))
        yield piece[first:], False  # it begins within a sentence


def _paragraphs(text: str, without: Collection[str]) -> Iterator[str]:
    """Lines that belong together, as one string each."""
    is_timed = "-->" in text
    fenced = False
    held: list[str] = []
    if "<!--" in text:
        text = _COMMENT.sub(" ", text)
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            if _RULE.match(line):
                held = held[:-1]  # what is underlined is a heading
            elif (is_timed and (not line.strip() or _CUE_NUMBER.fullmatch(line))) or (
                _TIMES.fullmatch(line) and line.strip()
            ):
                continue
            elif line.strip() and not _is_left_out(line, without):
                item = _ITEM.match(line)
                if held and (item or _ends_alone(held[-1], line)):
                    yield "\n".join(held)
                    held = []
                line = line[item.end() :] if item else line
                held.append(_LEADING_TIME.sub("", line, count=1) if ":" in line[:16] else line)
                continue
        if held:
            yield "\n".join(held)
        held = []
    if held:
        yield "\n".join(held)


def _is_left_out(line: str, without: Collection[str]) -> bool:
    if "-->" in line or " | " in line or _SKIPPED.match(line):
        return True
    return len(line) < _LONGEST_HEADING and _folded(line) in without


def _ends_alone(line: str, following: str) -> bool:
    """A short line without an end, before one with a capital: a heading that nobody marked."""
    if len(line) > 48 or END_MARK.search(line[-2:]) or line.rstrip()[-1:] in ",;:–—-":
        return False
    first = following.lstrip()[:1]
    return first.isupper() and len(following) > 1.5 * len(line)


def _without_markup(text: str) -> str:
    if "<" in text:
        text = _VOICE.sub(" ", text)
    if "[" in text:
        text = _LINK.sub(r"\1", _IMAGE.sub(" ", text))
    if "`" in text or "*" in text or "_" in text:
        text = _EMPHASIS.sub("", _ROLE.sub("", text))
    return " ".join(text.split())


def _is_prose(sentence: str, folded: str) -> bool:
    if len(sentence) > _LONGEST or not END_MARK.search(sentence[-3:]):
        return False
    if not sentence.isascii() and UNSPACED.search(sentence):
        return sum(map(str.isalpha, sentence)) >= _FEWEST_SIGNS
    if sentence.count(" ") < _FEWEST_WORDS - 1 or sentence[0] in ">|=<{}$;":
        return False
    if any(sign in sentence for sign in _CODE) or any(part in folded for part in _BOILERPLATE):
        return False
    return len(_SIGN.findall(sentence)) <= 0.25 * len(sentence)


def _folded(line: str) -> str:
    return " ".join(line.casefold().split())
