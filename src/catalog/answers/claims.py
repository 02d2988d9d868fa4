"""Read a model's reply: its sentences, the passages they cite, and whether these support them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from catalog.answers.neutralising import neutralise
from catalog.answers.prompting import NO_ANSWER
from catalog.answers.statements import Statement, denies, is_denied, question_of, read_statements
from catalog.answers.support import Support, analyse_text, check_support
from catalog.core.answers import AnswerSentence
from catalog.core.results import SearchResult
from catalog.core.text import clean
from catalog.ingest.chunking.boundaries import END_MARK, sentence_spans
from catalog.llm.replies import ThoughtFilter
from catalog.retrieval.query_words import language_of_words, query_words

_GAP = r"(?<!\s)\s*+"  # all the white space before it: only so is a search of much of it linear
_NUMBERS = re.compile(_GAP + r"(?:\[\^?|【)\s*+(\d{1,4}(?:\s*+[,;–-]\s*+\d{1,4})*+)\s*+(?:\]|】)")
_NAMED = re.compile(_GAP + r"\[(?:chunk|source):\s*+[^\]]{1,500}+\]", re.I)
_LEADING = re.compile(rf"\A(?:{_NUMBERS.pattern}|{_NAMED.pattern})+[.,;]?", re.I)
_MARKER = re.compile(r"(?:\d{1,3}[.)]|[-*•+])+")  # of an item of a list
_MAY_END = re.compile(rf"{END_MARK.pattern}|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
_EXCEPTION = re.compile(r"\b(?:unless|except(?:ing)?|other than)\b([^,.;:()\n]*+)", re.I)
_LONG_WORD = re.compile(r"\w{4,}")
_DETAIL = re.compile(r"\d(?:[\w.-]*\w)?|[^\W\d]\w{3,}+")
_NO = re.compile(r"(?:\w{1,10}:\s{0,3})?(?:no|never|not)\b", re.I)
_MOST_OF_RANGE = 20
_BUDGET, _BUDGET_AT_FIRST = 8, 4_000  # characters split for each that comes, and before
_LONGEST_BEGINNING = 100  # characters: tells an abstention, which is shorter


class Claim(NamedTuple):
    """A sentence as the model wrote it, and the white space before it."""

    breaks: str
    text: str


class ClaimReader:
    """Split a reply into sentences as it arrives: each when it and its citations are complete.

    The rest is split again with every piece that may end a sentence, but for at most eight times
    the reply's characters in all, so that the work is linear. Beyond that, a sentence waits until
    its text has grown by an eighth.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._thoughts = ThoughtFilter()
        self._beginning = ""
        self._rest = ""  # split before: holds no whole sentence
        self._new: list[str] = []  # what follows it
        self._size = 0  # of both
        self._budget = _BUDGET_AT_FIRST  # characters that may be split
        self._may_end = False  # either has a mark behind which a sentence may begin

    @property
    def reply(self) -> str:
        """Return the whole reply, thoughts included."""
        return "".join(self._pieces)

    @property
    def says_no_answer(self) -> bool:
        """Return whether the model abstains."""
        said = self._beginning.casefold().replace("’", "'")
        own = tuple(f"i don't see {what}" for what in ("an answer", "enough", "content"))
        return said.startswith((NO_ANSWER.casefold(), *own))

    def feed(self, piece: str) -> Iterator[Claim]:
        """Take the next piece and yield the sentences that it completes."""
        self._pieces.append(piece)
        piece = self._thoughts.feed(piece)
        self._take(piece)
        if not self._may_end or not piece or piece.isspace():
            return  # only what follows a sentence tells that it is whole
        if self._size > self._budget:
            return
        self._budget -= self._size
        text = self._text()
        claims = list(split_claims(text))
        is_open = 1  # of the last sentences: what follows may belong to them
        if claims and claims[-1].text.startswith(("[", "【")):
            is_open = 2
        whole, rest = claims[:-is_open], claims[-is_open:]
        if whole:
            ending = text[len(text.rstrip()) :]
            text = "".join(f"{one.breaks}{one.text}" for one in rest) + ending
            self._may_end = _MAY_END.search(text) is not None
        self._rest, self._new, self._size = text, [], len(text)
        yield from whole

    def end(self, *, is_cut: bool = False) -> Iterator[Claim]:
        """Yield the remaining sentences, without the last one if the reply was cut."""
        self._take(self._thoughts.end())
        claims = list(split_claims(self._text()))
        yield from claims[:-1] if is_cut else claims

    def _take(self, piece: str) -> None:
        self._new.append(piece)
        self._size += len(piece)
        self._budget += _BUDGET * len(piece)
        self._may_end = self._may_end or _MAY_END.search(piece) is not None
        if len(self._beginning) < _LONGEST_BEGINNING:
            self._beginning = (self._beginning + piece).lstrip(" .*\"'\n")[:_LONGEST_BEGINNING]

    def _text(self) -> str:
        return self._rest + "".join(self._new)


def split_claims(text: str) -> Iterator[Claim]:
    """Yield the sentences of each line; citations after a full stop belong before it."""
    breaks = " " if text[:1] in (" ", "\t") else ""
    for line in text.splitlines(keepends=True):
        pieces: list[Claim] = []
        for start, end in sentence_spans(line):
            piece = line[start:end]
            leading = _LEADING.match(piece) if pieces else None
            if leading is not None:
                before = pieces.pop()
                pieces.append(before._replace(text=f"{before.text} {leading.group().strip()}"))
                piece = piece[leading.end() :].strip()
            if pieces and _MARKER.fullmatch(pieces[-1].text):
                piece = f"{pieces.pop().text} {piece}"
            if piece:
                pieces.append(Claim(" " if pieces else breaks, piece))
        yield from pieces
        breaks = breaks * (not pieces) + "\n" if line.strip() or breaks else breaks
        breaks = "\n\n" if len(breaks) > 1 else breaks


def check_claim(claim: Claim, given: Mapping[int, SearchResult]) -> AnswerSentence:
    """Return the sentence with the passages that it cites and whether these support it.

    A citation counts if it names a passage that was ``given``. It is enough if one cited passage
    supports the sentence, or else all together; the rest are left out. Images, active HTML and
    addresses that no cited passage contains are removed from the sentence first.
    """
    numbers, unknown = _cited(claim.text, given)
    cited = {number: given[number] for number in numbers}
    text = neutralise(clean(_without_citations(claim.text, given)), cited.values())
    reasons = [f"it cites {name}, which is not a given passage" for name in unknown]
    supporting: tuple[int, ...] = ()
    if not cited and not unknown:
        reasons.append("it cites no passage")
    elif cited:
        supporting, check = _supporting(text, cited)
        against = {number: find_denial(text, cited[number]) for number in supporting}
        supporting = tuple(number for number, why in against.items() if why is None)
        if against and not supporting:
            check = Support(False, check.score, tuple(filter(None, against.values())))
        reasons = [] if supporting else [*reasons, *check.reasons]
    return AnswerSentence(
        text=text,
        citations=supporting or tuple(numbers),
        supported=bool(supporting),
        reasons=tuple(reasons),
        breaks=claim.breaks,
    )


def find_denial(text: str, result: SearchResult) -> str | None:
    """Return why a passage that has a sentence's words does not say it; ``None`` if it may."""
    # "Not allowed": it is only a title.
    if any(_folded(text) in one.casefold() for one in (result.title, *result.sections)):
        return "words: it is only a title"
    statements = list(read_statements(result.text, result.sections))
    if not statements:
        return None
    words = query_words(text, language_of_words(result.text))
    ranks = [words.rank(words.matches(one.text)) for one in statements]
    # "Alder has 16 GB": that is in the row of birch.
    if (misplaced := _find_misplaced(text, statements)) is not None:
        return misplaced
    negated = _is_negated(text)
    # "You can bring a dog", where "Can I bring a dog?" is answered "No."
    for one in () if negated else statements:
        asked = question_of(one)
        if asked and _NO.match(one.text) and words.rank(words.matches(asked)) >= max(ranks):
            return f"negation: the passage answers {asked!r} with {one.text!r}"
    return _find_turn(text, statements[ranks.index(max(ranks))], negated)


def _find_turn(text: str, nearest: Statement, negated: bool) -> str | None:
    """Return why a sentence does not say what the most similar statement does, if so."""
    # "Gift cards are refunded", where purchases are, "except gift cards".
    if (exception := _EXCEPTION.search(nearest.text)) and not _EXCEPTION.search(text):
        rule = nearest.text[: exception.start()]
        excepted = _long_words(exception[1]) - _long_words(rule)
        if excepted & _long_words(text) and _is_negated(rule) == negated:
            return f"exception: the passage says {exception[0]!r}"
    if (negated or denies(text, most=len(text))) and _folded(text) not in nearest.text.casefold():
        return None
    # "Decaf has no caffeine", where this is a "Myth:".
    is_answer = _folded(text) in nearest.turned.casefold()
    if is_denied(nearest) and not is_answer and not is_denied(nearest._replace(text=text)):
        return f"negation: the passage says {nearest.text!r}"
    # "Dogs in the hall", an item under "Not allowed".
    if denying := next((one for one in nearest.context if denies(one)), None):
        return f"negation: the passage says it under {denying!r}"
    # "The pool is open", where the next sentence is "This is no longer true."
    if denies(nearest.turned, most=len(nearest.turned)) and text not in nearest.turned:
        return f"negation: the passage goes on with {nearest.turned!r}"
    return None


def _find_misplaced(text: str, statements: Sequence[Statement]) -> str | None:
    """Return why a sentence about one row of a table has a detail of another row, if it does."""
    rows = [one.text.casefold().split("; ") for one in statements if "; " in one.text]
    rows = [row for row in rows if any(": " in cell for cell in row)]
    keys = [row[0].rpartition(": ")[2] for row in rows]
    asked = text.casefold()
    named = [
        at
        for at, key in enumerate(keys)
        if _LONG_WORD.search(key) and re.search(rf"\b{re.escape(key)}\b", asked)
    ]
    if len(named) != 1:
        return None
    own = set(_DETAIL.findall(" ".join(rows[named[0]])))
    cells = [cell for at, row in enumerate(rows) if at != named[0] for cell in row]
    others = {word for cell in cells for word in _DETAIL.findall(cell.rpartition(": ")[2])}
    columns = {word for cell in cells for word in _DETAIL.findall(cell.partition(": ")[0])}
    strange = sorted((set(_DETAIL.findall(asked)) & others) - own - columns)
    return f"table: the row of {keys[named[0]]} has no {', '.join(strange)}" if strange else None


def _is_negated(text: str) -> bool:
    return any(word.is_negation for one in analyse_text(text).sentences for word in one)


def _folded(text: str) -> str:
    return text.strip(" .").casefold()


def _long_words(text: str) -> set[str]:
    return set(_LONG_WORD.findall(text.casefold()))


def _supporting(text: str, cited: Mapping[int, SearchResult]) -> tuple[tuple[int, ...], Support]:
    """Return the numbers of the passages that support the sentence, and the deciding check."""
    headings = {number: read_headings(one) for number, one in cited.items()}
    checks = {
        number: check_support(text, one.text, headings=headings[number])
        for number, one in cited.items()
    }
    best = max(checks.values(), key=lambda check: (check.supported, check.score))
    if best.supported:
        return tuple(number for number, check in checks.items() if check.supported), best
    if len(cited) > 1:
        best = check_support(
            text,
            "\n\n".join(one.text for one in cited.values()),
            headings="\n".join(headings.values()),
            stretches=len(cited),
        )
    return tuple(cited) if best.supported else (), best


def read_headings(result: SearchResult) -> str:
    """Return a passage's title and headings, a line each."""
    return "\n".join(dict.fromkeys([result.title, *result.sections]))


def _cited(text: str, given: Mapping[int, SearchResult]) -> tuple[list[int], list[str]]:
    """Return the cited numbers that were given, in order, and the names of unknown citations."""
    numbers: dict[int, None] = {}
    unknown: dict[str, None] = {}
    for match in _NUMBERS.finditer(text):
        for number in _expand(match[1]):
            if number in given:
                numbers[number] = None
            elif not _is_subscript(text, match):
                unknown[f"[{number}]"] = None
    for match in _NAMED.finditer(text):
        name = match.group().strip()
        found = [
            n for n, one in given.items() if name in (one.citation, f"[chunk: {one.chunk_id}]")
        ]
        numbers |= dict.fromkeys(found[:1])
        unknown |= dict.fromkeys([] if found else [name])
    return list(numbers), list(unknown)


def _without_citations(text: str, given: Mapping[int, SearchResult]) -> str:
    def drop(match: re.Match[str]) -> str:
        is_word = _is_subscript(text, match) and not set(_expand(match[1])) & given.keys()
        return match.group() if is_word else ""

    return " ".join(_NAMED.sub("", _NUMBERS.sub(drop, text)).split())


def _expand(numbers: str) -> Iterator[int]:
    for part in re.split("[,;]", numbers):
        first, *last = (int(number) for number in re.split("[–-]", part))
        stop = min(last[0], first + _MOST_OF_RANGE) if last else first
        yield from range(first, stop + 1) if stop >= first else (first, *last)


def _is_subscript(text: str, match: re.Match[str]) -> bool:
    """Return whether a bracket follows a word directly, as in ``rows[0]``."""
    at = match.start()
    return at > 0 and text[at] == "[" and (text[at - 1].isalnum() or text[at - 1] in "_)]")
