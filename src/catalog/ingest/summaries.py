"""Extract the prose of a document, and summarise it in its own sentences.

Prose is text without markup, headings, code, tables and times. Of a long text the beginning and
evenly spaced pieces are read, so that the time does not grow with it. The summary is its opening
and the most central other sentences.

TextRank (R. Mihalcea, P. Tarau: TextRank: Bringing Order into Texts, EMNLP 2004): sentences are the
nodes of a graph, the words that two of them share give the weight of their edge, and the PageRank
of a sentence is its importance. No model is used, so the same text always has the same summary.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from catalog.ingest.chunking.boundaries import END_MARK, sentence_spans
from catalog.store.lexical.analysis import UNSPACED
from catalog.store.lexical.languages import stop_words

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

HEAD_CHARS = 9_000  # of a text, read before anything is left out

_MOST_CONTENTS = 30
_DOTS = r"\.(?<!\.\.)(?<!\. \.)(?:(?: \.){3,}+|(?: ?\.){3,}+[ \t]*+[\divxlc]{1,6})"
_LEADER = re.compile(rf"{_DOTS}[ \t]*$", re.MULTILINE)
_PAGE_NUMBER = re.compile(r"\s\d{1,4}\s{0,2}\Z")
_ENTRY_NUMBER = re.compile(r"\s*(?:\d{1,3}|[A-Z]|[IVX]{1,5})(?:\.\d{1,3}){0,4}\.?\s+\S")
_BARE_NUMBER = re.compile(r"\s*[\divxlc]{1,6}\s*\Z")
_LONGEST_ENTRY = 120
_FEWEST_ENTRIES = 3


def skip_first_contents(text: str, begin: int) -> tuple[str, int]:
    """Return the text before a table of contents with dotted lines, and the end of that table.

    Without one in the beginning of the text they are ``""`` and ``begin``.
    """
    first = _LEADER.search(text, begin, begin + HEAD_CHARS)
    if first is None:
        return "", begin
    end = first.end()
    for _ in range(_MOST_CONTENTS):
        leaders = _LEADER.finditer(text, end, end + HEAD_CHARS // 3)
        last = max((leader.end() for leader in leaders), default=end)
        if last == end:
            break
        end = last
    return text[begin : first.end()], end


def drop_contents(lines: list[str]) -> Iterator[str]:
    """Yield the lines without those of a table of contents: dotted ones, and numbered runs.

    A run has at least three lines that end in a page number or begin with the number of a heading;
    one of them must do both or be dotted.
    """
    run: list[str] = []
    kinds: list[int] = []
    for line in lines:
        kind = _rate_entry(line) if line.strip() else 0
        if kind or not line.strip():
            run.append(line)
            kinds.append(kind)
        else:
            yield from _drop_if_contents(run, kinds)
            run, kinds = [], []
            yield line
    yield from _drop_if_contents(run, kinds)


def _drop_if_contents(run: list[str], kinds: list[int]) -> list[str]:
    """Return the run of lines, or one blank line if it is a table of contents."""
    entries = sum(kind > 0 for kind in kinds)
    best = max(kinds, default=0)
    return [""] if best > 2 or (best > 1 and entries >= _FEWEST_ENTRIES) else run


def _rate_entry(line: str) -> int:
    """Rate a line as an entry of a table of contents: 3 dotted, 2 likely, 1 maybe, 0 no."""
    if ("..." in line or ". ." in line) and _LEADER.search(line):
        return 3
    if len(line) > _LONGEST_ENTRY:
        return 0
    if len(line) < 12 and _BARE_NUMBER.match(line):
        return 1
    is_numbered = _ENTRY_NUMBER.match(line) is not None
    has_page = line[-3:].rstrip()[-1:].isdigit() and _PAGE_NUMBER.search(line) is not None
    if is_numbered and has_page:
        return 2
    return int(has_page or (is_numbered and not END_MARK.search(line[-3:])))


TIME = r"(?:\d{1,2}:)?\d{1,2}:\d\d(?:[.,]\d{1,3})?"
_TAG_NAMES = (
    "a|abbr|b|big|blockquote|body|br|button|c|center|cite|code|dd|details|div|dl|dt|em|figure|font"
    "|form|h[1-6]|head|hr|html|i|iframe|img|input|kbd|lang|li|link|meta|nav|ol|p|picture|pre|q|rt"
    "|ruby|s|samp|script|section|small|source|span|strong|style|sub|summary|sup|svg|table|tbody|td"
    "|th|thead|title|tr|tt|u|ul|v|var|video"
)
_CLOSING = ".,;:!?)"
_TAG = re.compile(
    rf"""<(?=[\w/?!])(?:
        /[A-Za-z][\w:.-]{{0,60}}\s?
      | (?:{_TAG_NAMES})(?:[\s./][^<>\n]{{0,300}})?
      | [A-Za-z][\w:.-]{{0,60}}(?:\s[^<>]{{0,300}})?(?:=["'][^<>]{{0,300}}|/)
      | [A-Za-z][\w.-]{{0,30}}:[\w.-]{{1,60}}
      | [?!][A-Za-z][^<>]{{0,300}}
      | {TIME}
    )>""",
    re.VERBOSE | re.IGNORECASE,
)
IMAGE = re.compile(r"!\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
_LINK = re.compile(
    r"""\[(?<![\w\])]\[)([^\[\]]+)\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)?(?:\s+["'][^()]*)?\)"""
)
_REFERENCE = re.compile(r"\[(?<![\w\])]\[)(?=\S)([^\[\]]+)(?<=\S)\] ?\[[^\[\]]*\]")
_NAMED_LINK = re.compile(r"`([^`<>\s][^`<>]{0,300}?)(?:\s{0,4}<[^<>`]{1,300}>)?`__?(?!\w)")
_ROLE = re.compile(r":[a-z][\w:+-]{0,30}:(?=`)")
_EMPHASIS = re.compile(  # of whole words only; code stays unchanged
    r"""(?=[`*_])(?:
        (?<![\w`\\])(?P<code>`{1,2})(?=\S)(?P<in_code>[^`]{1,300})(?<=\S)(?P=code)(?![\w`])
      | (?<![\w*\\])(?P<stars>\*{1,3})(?=[\w"'“‘(\[`])(?P<in_stars>[^*]{1,300})
        (?<=[\w"'”’)\]`.,:;!?。！？])(?P=stars)(?![\w*])
      | (?<![\w\\])(?P<lines>_{1,2})(?=[^\W_])(?P<in_lines>[^_\s]{1,99}\s[^_]{1,300})
        (?<=[^\s_])(?P=lines)(?!\w))""",
    re.VERBOSE,
)
_WIDE = "[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]"
_WRAPPED = re.compile(rf"(?<={_WIDE}{{16}})[ \t]*\n\s*(?={_WIDE})")  # within a wide paragraph


def strip_markup(text: str, has_references: bool = False) -> str:
    """Return a text on one line, without the markup of HTML, Markdown and reStructuredText.

    ``[text][name]`` is a link only if the document ``has_references``.
    """
    if "<" in text:
        text = _TAG.sub(
            lambda tag: "" if tag.string[tag.end() : tag.end() + 1] in _CLOSING else " ", text
        )
    if "[" in text:
        text = _LINK.sub(r"\1", IMAGE.sub(" ", text))
        text = _REFERENCE.sub(r"\1", text) if has_references else text
    if "`" in text:
        text = _NAMED_LINK.sub(r"\1", _ROLE.sub("", text))
    if "`" in text or "*" in text or "_" in text:
        text = _EMPHASIS.sub(r"\g<in_code>\g<in_stars>\g<in_lines>", text)
    if not text.isascii():
        text = _WRAPPED.sub("", text)
    return " ".join(text.split())


PIECES = 30
PIECE_CHARS = 400
_LONGEST = 700  # characters of a sentence; a longer one is actually a list or a table
_LONGEST_HEADING = 200
_FEWEST_WORDS = 4
_FEWEST_SIGNS = 8  # of a script without spaces
_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FENCE = re.compile(r"\s{0,3}(?:```|~~~)")
_RULE = re.compile(r"\s*(?:([-=~^*_+\"'`.#:])(?:[ \t]*\1){2,}|::)\s*\Z")
_ITEM = re.compile(r"\s*(?:[-*+•–▪]|\d{1,3}[.)]|#\.)\s+")
_TIMES = re.compile(rf"\s*[\[(]?{TIME}[\])]?(?:\s*(?:-->|--?|[–—,])\s*[\[(]?{TIME}[\])]?.*)?\s*")
_LEADING_TIME = re.compile(
    rf"(?<!\s)\s*+[\[(]?{TIME}(?:\s*+[-–—]++\s*+{TIME})?[\])]?(?:\s*+[-–—:|]\s++|\s++)(?=\S)"
)
_CUE_NUMBER = re.compile(r"\s*(?:WEBVTT.*|NOTE\b.*|\d+|[\w-]+/\d+-\d+)\s*")
_SKIPPED = re.compile(
    r"""\s*(?:
        \#{1,6}\s                       # heading
      | (?:[A-Z]|\d+)(?:\.\d+)+\.?\s.{0,100}\Z    # numbered heading
      | \|                              # table
      | \.\.\s|__\s|:[\w-]{1,40}:(?:\s|\Z)   # reStructuredText directive, field
      | <!--|<\?|<!|\[[^\]]{1,200}\]:\s # comment, declaration, link definition
      | (?:[-*+•]\s+)?(?:https?://|www\.)\S+\s*\Z
      | \$\s|>>>|\.\.\.\s               # a session at a prompt
    )""",
    re.VERBOSE,
)
_LINKS = re.compile(r"\s*(?P<item>[-*+•]\s+|\d+[.)]\s+)?(?:!?\[[^\]]*\]\([^)]*\)[\s,;|·•]*)+\Z")
_BOILERPLATE = (
    "©", "copyright 1", "copyright 2", "copyright (c)", "all rights reserved", "we use cookies",
    "accept cookies", "uses cookies", "subscribe to ", "sign up for ", "click here", "skip to ",
    "table of contents",
)  # fmt: skip
_CODE = ("{", "}", " = ", "==", "=>", "().", "();", "/>")
_LICENCE = (
    "without any warranty", "without warranty of any kind", "merchantability", "liable for any",
    "permission is granted", "permission is hereby granted", "general public license",
    "free documentation license", "free software foundation", "this permission notice",
    "above copyright notice", "redistribution and use in source", "redistributions of source code",
    "redistributions in binary form", "under the conditions for verbatim copying",
    "you should have received a copy", "gnu.org/licenses",
)  # fmt: skip
_DEFINITION = re.compile(r"^ {0,3}\[[^\[\]\n]{1,200}\]: ?\S", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*\.\.\s+([\w:+-]{1,40})::\s*")
_SILENT_DIRECTIVES = (
    "code", "code-block", "contents", "figure", "highlight", "image", "index", "math", "meta",
    "only", "raw", "sourcecode",
)  # fmt: skip
_NO_LINE = re.compile(r"\s*(?::[\w-]{1,40}:(?:\s|\Z)|\.\.(?:\s|\Z)|__\s|\[[^\]]{1,200}\]:\s)")
_SUBSTITUTION = re.compile(r"(?<![\w|])\|(\w[\w. -]{0,60})\|_{0,2}(?![\w|])")
_TABLE_RULE = re.compile(r"[\s|:+=-]+\Z")
_HASHES = re.compile(r"\s{0,3}#{1,6}\s+")
_ENDED = re.compile(rf"{END_MARK.pattern}[^\w\s]*\Z")
_SIGN = re.compile(r"[^\w\s]|\d")


@dataclass(frozen=True, slots=True)
class Prose:
    """The prose of a text.

    ``sentences`` are those worth showing, without repetitions and in order. ``paragraphs`` are the
    lines of its beginning (about ``HEAD_CHARS`` characters) that are not headings, code or tables,
    without repetitions, whether or not they are sentences. ``share`` is the part of such lines in
    whole sentences, from 0 to 1.
    """

    sentences: list[str]
    paragraphs: list[str]
    share: float

    @property
    def plain(self) -> str:
        """The paragraphs as one line, without markup."""
        return " ".join(filter(None, map(strip_markup, self.paragraphs)))


def read_prose(text: str, headings: Collection[str] = ()) -> Prose:
    """Read the prose of a text without lines that equal one of the ``headings``.

    Sentences have no markup, and single spaces. Those of a licence count only in a text that is
    mostly licence.
    """
    folded_headings = {_fold(heading) for heading in headings}
    has_references = "]:" in text and _DEFINITION.search(text) is not None
    sentences: dict[str, str] = {}  # by their folded text
    lines: dict[str, None] = {}
    paragraphs: list[str] = []
    in_sentences, in_all = 0, 0
    for piece, is_first in _pieces(text):
        for paragraph in _paragraphs(piece, folded_headings):
            clean = strip_markup(paragraph, has_references)
            for start, end in sentence_spans(clean):
                sentence = clean[start:end]
                folded = sentence.casefold()
                if folded in sentences or _is_prose(sentence, folded):
                    sentences.setdefault(folded, sentence)
                    in_sentences += len(sentence)
            in_all += len(clean)
            if is_first:
                own = dict.fromkeys(paragraph.split("\n"))
                paragraphs.append("\n".join(line for line in own if line not in lines))
                lines.update(own)
    return Prose(_drop_licence(sentences), paragraphs, in_sentences / max(in_all, 1))


def first_lines(text: str, max_chars: int) -> str:
    """Return the first lines of the text, without repetitions, as one line of ``max_chars``.

    Markup is left out; rows of a table become their cells, with commas.
    """
    begin = _body_start(text)
    start = _COMMENT.sub(" ", text[begin : begin + 10 * max_chars])
    lines = start.splitlines()
    is_restructured = any(map(_DIRECTIVE.match, lines))
    shown: dict[str, None] = {}
    length, fenced = 0, False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
            continue
        clean = " ".join(line.split()) if fenced else _show_line(line)
        if is_restructured and not fenced:
            clean = _SUBSTITUTION.sub(r"\1", clean)
        if clean and clean not in shown:
            shown[clean] = None
            length += len(clean) + 1
            if length > max_chars:
                break
    return " ".join(shown).rstrip(";")


def _show_line(line: str) -> str:
    """Return a line without marks of a heading, a list item, a directive or a row."""
    directive = _DIRECTIVE.match(line)
    if directive:
        return "" if directive[1] in _SILENT_DIRECTIVES else line[directive.end() :].strip()
    if _RULE.match(line) or _NO_LINE.match(line) or _TIMES.fullmatch(line):
        return ""
    if _is_row(line.strip()):
        if _TABLE_RULE.match(line):
            return ""
        cells = (strip_markup(cell) for cell in line.split("|"))
        return ", ".join(filter(None, cells)) + ";"
    images = IMAGE.sub(lambda image: image[1] if " " in image[1] else " ", line)
    return strip_markup(_HASHES.sub("", images, count=1))


def _is_row(line: str) -> bool:
    if line.startswith("|") and len(line) > 1:
        return line[1].isspace() or line.endswith("|")
    return " | " in line or line.endswith(" |")


def _drop_licence(sentences: dict[str, str]) -> list[str]:
    """Drop the sentences of a licence if there are other sentences."""
    whole = "\n".join(sentences)
    parts = [part for part in _LICENCE if part in whole]
    others = [
        sentence
        for folded, sentence in sentences.items()
        if not any(part in folded for part in parts)
    ]
    has_more = 2 * sum(map(len, others)) >= sum(map(len, sentences))
    return others if has_more else list(sentences.values())


def _body_start(text: str) -> int:
    """Return where the text begins, after front matter."""
    front = _FRONT_MATTER.match(text)
    return front.end() if front else 0


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text, or its beginning and pieces of the rest; ``True`` with the beginning.

    The beginning continues after a table of contents.
    """
    begin = _body_start(text)
    if len(text) - begin <= HEAD_CHARS + PIECES * PIECE_CHARS:
        yield text[begin:], True
        return
    before, begin = skip_first_contents(text, begin)
    if before:
        yield before, True
    yield text[begin : begin + HEAD_CHARS], True
    step = (len(text) - begin - HEAD_CHARS) / PIECES
    for number in range(PIECES if step > 0 else 0):
        start = begin + HEAD_CHARS + int(number * step)
        piece = text[start : start + PIECE_CHARS]
        first = next((end for _, end in sentence_spans(piece)), len(piece))
        yield piece[first:], False  # it begins within a sentence


def _paragraphs(text: str, headings: Collection[str]) -> Iterator[str]:
    """Yield the lines that belong together as one string."""
    is_timed = "-->" in text
    fenced = False
    paragraph: list[str] = []
    if "<!--" in text:
        text = _COMMENT.sub(" ", text)
    for line in drop_contents(text.splitlines()):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            if _RULE.match(line):
                paragraph = paragraph[:-1]  # an underlined line is a heading
            elif (is_timed and (not line.strip() or _CUE_NUMBER.fullmatch(line))) or (
                _TIMES.fullmatch(line) and line.strip()
            ):
                continue
            elif line.strip() and not _is_left_out(line, headings, bool(paragraph)):
                item = _ITEM.match(line)
                if paragraph and (item or _ends_alone(paragraph[-1], line)):
                    yield "\n".join(paragraph)
                    paragraph = []
                line = line[item.end() :] if item else line
                paragraph.append(_LEADING_TIME.sub("", line, count=1) if ":" in line[:16] else line)
                continue
        if paragraph:
            yield "\n".join(paragraph)
        paragraph = []
    if paragraph:
        yield "\n".join(paragraph)


def _is_left_out(line: str, headings: Collection[str], is_within: bool) -> bool:
    """Return whether a line is not prose; within a paragraph a line of links is prose."""
    links = _LINKS.match(line) if "](" in line else None
    if links and (links["item"] or not is_within):
        return True
    if "-->" in line or " | " in line or _SKIPPED.match(line):
        return True
    return len(line) < _LONGEST_HEADING and _fold(line) in headings


def _ends_alone(line: str, following: str) -> bool:
    """Recognise an unmarked heading: short, without a full stop, before a capital letter.

    A line in capitals is a heading before any other line.
    """
    if len(line) > 48 or END_MARK.search(line[-2:]) or line.rstrip()[-1:] in ",;:–—-":
        return False
    if line.isupper() and line.replace(" ", "").isalpha() and not following.isupper():
        return True
    first = following.lstrip()[:1]
    return first.isupper() and len(following) > 1.5 * len(line)


def _is_prose(sentence: str, folded: str) -> bool:
    if len(sentence) > _LONGEST or not _ENDED.search(sentence[-4:]):
        return False
    if sentence[0] in ",;:)" or sentence.endswith(", ."):
        return False  # a part of a formula
    if not sentence.isascii() and UNSPACED.search(sentence):
        return sum(map(str.isalpha, sentence)) >= _FEWEST_SIGNS
    if sentence.count(" ") < _FEWEST_WORDS - 1 or sentence[0] in ">|=<{}$;":
        return False
    if any(sign in sentence for sign in _CODE) or any(part in folded for part in _BOILERPLATE):
        return False
    return len(_SIGN.findall(sentence)) <= 0.25 * len(sentence)


def _fold(line: str) -> str:
    return " ".join(line.casefold().split())


MAX_CHARS = 400
DAMPING = 0.85  # as in the TextRank paper
MOST_SENTENCES, FIRST_SENTENCES = 150, 60
_STEPS = 30
_LEAST_RANK = 0.5  # of a sentence that has words in common with other sentences
_LEAST_PROSE = 0.1  # with less of the text in whole sentences the first words are the summary
_FEWEST_CHARS = 80  # of whole sentences; fewer may be a scrap of a text that is no prose
_SCRAP = 60  # characters; lines that may be prose and are fewer give way to the first lines
_LEAST_PLAIN = 0.5  # of the first lines; with less the lines that may be prose are a scrap
_WORD = re.compile(r"\w+")
_WIDE_END = re.compile("([。！？｡][」』”’）】]*)\n")


def summarise(text: str, *, max_chars: int = MAX_CHARS, headings: Sequence[str] = ()) -> str:
    """Return the opening sentence and the most central ones that fit, in order.

    The result is one line of at most ``max_chars`` (at least 1) characters; a sentence that is too
    long is cut after a word, with ``…``. Lines that equal one of the ``headings`` do not count, and
    neither do markup, code, tables, tables of contents, times, lists of links, repetitions, or a
    licence before other text. A text with hardly any whole sentences is summarised by its first
    words, one with only markup or images by ``""``. At most 150 sentences of a long text are
    compared, so that the time hardly grows with it.
    """
    prose = read_prose(text, headings)
    sentences = prose.sentences
    prose_chars = sum(map(len, sentences))
    if prose.share < _LEAST_PROSE or prose_chars < _FEWEST_CHARS:
        first = first_lines(text, 2 * max_chars)
        if prose.share < _LEAST_PROSE or prose_chars < _LEAST_PROSE * len(first):
            plain = prose.plain
            enough = min(_LEAST_PLAIN * len(first), _SCRAP)
            return _shorten(plain if len(plain) >= enough else first, max_chars)
    sentences = _thin_out(sentences)
    if prose_chars <= max_chars and len(joined := _join(sentences)) <= max_chars:
        return joined
    if len(sentences[0]) > max_chars:
        return _shorten(sentences[0], max_chars)
    chosen, summary = {0}, sentences[0]
    ranks = rank_sentences(sentences)
    central = (number for number, rank in enumerate(ranks) if rank >= _LEAST_RANK)
    for number in sorted(central, key=lambda number: (-ranks[number], number)):
        if len(summary) + len(sentences[number]) <= max_chars:
            longer = _join(sentences[index] for index in sorted(chosen | {number}))
            if len(longer) <= max_chars:
                summary = longer
                chosen.add(number)
    return summary


def rank_sentences(sentences: Sequence[str]) -> list[float]:
    """Return the TextRank of each sentence; the mean is 1.

    Similarity is that of the paper: the number of words that two sentences share, divided by the
    sum of the logarithms of their numbers of words. Stop words do not count.
    """
    import numpy as np

    word_sets = [_words(sentence) for sentence in sentences]
    weights = _count_shared(word_sets)
    sizes = np.array([log(1 + len(words)) for words in word_sets])
    weights /= np.maximum(sizes[:, None] + sizes[None, :], 1e-9)
    totals = weights.sum(axis=0)
    weights[:, totals <= 0] = 1.0  # a sentence like no other leads to all of them
    steps = weights * (DAMPING / weights.sum(axis=0))
    ranks = np.ones(len(word_sets))
    for _ in range(_STEPS):
        ranks = (1 - DAMPING) + steps @ ranks
    return [round(float(rank), 6) for rank in ranks]  # rounded, to be equal on all machines


def _count_shared(word_sets: Sequence[frozenset[str]]) -> npt.NDArray[np.float64]:
    """Count the words that each pair of sentences shares; 0 for a sentence with itself."""
    import numpy as np

    numbers = {word: n for n, word in enumerate(sorted(frozenset().union(*word_sets)))}
    marks = np.zeros((len(word_sets), len(numbers)), dtype=np.float32)
    for row, words in enumerate(word_sets):
        marks[row, [numbers[word] for word in words]] = 1.0
    shared = (marks @ marks.T).astype(np.float64)
    np.fill_diagonal(shared, 0.0)
    return shared


def _words(sentence: str) -> frozenset[str]:
    folded = sentence.casefold()
    common = stop_words("english")
    words = {word for word in _WORD.findall(folded) if len(word) > 2 and word not in common}
    for run in () if folded.isascii() else UNSPACED.findall(folded):
        words.update(run[at : at + 2] for at in range(len(run) - 1))
    return frozenset(words)


def _thin_out(sentences: list[str]) -> list[str]:
    """Return the first sentences, and evenly spaced ones from the rest."""
    others = len(sentences) - FIRST_SENTENCES
    room = MOST_SENTENCES - FIRST_SENTENCES
    if others <= room:
        return sentences
    spaced = [sentences[FIRST_SENTENCES + number * others // room] for number in range(room)]
    return sentences[:FIRST_SENTENCES] + spaced


def _join(sentences: Iterable[str]) -> str:
    """Join sentences with a space, but without one after a full-width full stop."""
    return _WIDE_END.sub(r"\1", "\n".join(sentences)).replace("\n", " ")


def _shorten(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    start = text[: max_chars - 1]
    if not text[max_chars - 1].isspace() and not UNSPACED.match(text[max_chars - 1]):
        start = start.rpartition(" ")[0] or start
    return start.rstrip(" ,;:–—-") + "…"
