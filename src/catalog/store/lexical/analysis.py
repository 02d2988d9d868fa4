"""Turn text into the tokens that the index counts; documents and queries get the same ones.

A raw word is a run of letters, digits, underscores and combining marks. A single dot or hyphen
joins it to the next run (``foo.bar``). A dot may lead (``.net``), and ``++`` or ``#`` may follow
(``c++``, ``f#``). An apostrophe between capitals (``O'Brien``) and a comma between thousands
(``1,000``) join, too. A symbol or an emoji is a word. An English ending after an apostrophe
(``user's``, ``don't``) is dropped.

Every pattern here takes time linear in the text.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from catalog.core.ids import sha1_hex
from catalog.core.text import limit_marks
from catalog.store.lexical.languages import (
    LANGUAGES,
    LATIN_LANGUAGES,
    SCRIPTS,
    detect_language,
    stop_words,
    word_rules,
)

_CACHED, _SHORT = 50_000, 64  # raw words whose tokens are cached, and the longest of these
_MOST_JOINED = 20  # words of a query whose neighbours are joined
MAX_LENGTH = 128  # characters of a token: of a longer word only the first are indexed

# Marks of scripts that write vowels as combining characters, which Python's \w leaves out.
_MARKS = "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u06d6-\u06ed"
_INDIC = "\u0900-\u0963\u0966-\u0dff\u0e00-\u0e3a\u0e40-\u0eff\u1000-\u109f\u1780-\u17d3"
WORD_CHARACTERS = rf"\w{_MARKS}{_INDIC}"  # for use inside a regex character class
_W = f"[{WORD_CHARACTERS}]"
_ENDING = r"(?i:s|t|d|m|ll|re|ve)\b"
_JOINTS = (
    r"[.\-\u2010\u00ad\u200b\u2060\ufeff]"  # the last four are invisible
    rf"|(?<=[A-Z])['\u2019](?=[A-Z])(?!{_ENDING})"
    r"|(?<=\d),(?=\d{3}(?!\d))"
)
# Arrows, symbols and emoji, without skin tones: each is a word.
_SIGN = (
    "[\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\U0001f000-\U0001f3fa\U0001f400-\U0001faff]"
)
WORD = re.compile(
    rf"({_SIGN}|(?:(?<![\w.])\.(?=\w))?{_W}+(?:(?:{_JOINTS}){_W}+)*(?:\+\+|#(?!\w))?)"
    rf"(?:['\u2019]{_ENDING})?"
)
_JOINT = re.compile(r"[.\-\u2010\u00ad\u200b\u2060\ufeff+#,'\u2019]+")
_INNER_JOINT = re.compile(r"([.\-\u2010\u00ad\u200b\u2060\ufeff_,'\u2019]+)")
_GROUPED, _MOST_DIGITS = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+"), 15
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
_RUN = re.compile(rf"\d+(?:[.\-]\d+)*|(?:(?![\d_]){_W})+")  # of letters, or a number
_LETTER_AND_NUMBER = re.compile(r"(?:0x|[^\W\d_])(\d[\d.\-]{2,})")
# Scripts without spaces between words, and Korean, which attaches particles to words.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_HAN = "\u3005-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Compiled at the first use, which takes milliseconds.
_HAN_OR_HANGUL, _LONE_HAN = f"[{_HAN}\uac00-\ud7af]", f"(?<![{_HAN}])[{_HAN}](?![{_HAN}])"
_LEAST_RUN = 3  # characters: a shorter run of letters or digits is not a word by itself
_MOST_RUNS = 3  # of a word: one with more runs is an id or a hash
CASED = re.compile(
    r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z][a-z0-9]*|[A-Z0-9]+(?![a-z])|[0-9]+"
    r"|[^A-Za-z0-9]+"
)
_STROKES = str.maketrans("łøđı", "lodi")
_LIGATURES = str.maketrans({"œ": "oe", "Œ": "Oe", "æ": "ae", "Æ": "Ae"})
_ACCENTS = re.compile("[\u0300-\u036f]")
RULES = 6  # raise it with every change that gives a text other tokens
_CAPITALS = 3  # words: a shorter query in capitals is taken for names
_NOT_LATIN = frozenset(LANGUAGES) - frozenset(LATIN_LANGUAGES)


def raw_words(text: str) -> list[str]:
    """Return the raw words of a text in order, in compatibility form (NFKC), with case kept."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", limit_marks(text))
    return WORD.findall(text)


def indexed_text(title: str, headings: Sequence[str], text: str) -> str:
    """Return title and headings followed by the passage, without lines that the passage repeats."""
    above = list(dict.fromkeys([title, *headings]))
    return "\n".join([*(line for line in above if line and not _holds(text, line)), text])


def _holds(text: str, line: str) -> bool:
    """Return whether the text contains the line as whole words."""
    at = text.find(line)
    while at >= 0:
        end = at + len(line)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return True
        at = text.find(line, at + 1)
    return False


def fold(word: str) -> str:
    """Remove case and accents, so that ``Éclair`` and ``eclair`` are one word."""
    return without_accents(word).casefold()


def strip_accents(word: str) -> str:
    """Remove accents from a lower-case word, including strokes and the Turkish dotless i."""
    return word if word.isascii() else without_accents(word).translate(_STROKES)


def without_accents(word: str) -> str:
    """Remove accents, and write ligatures as two letters."""
    if word.isascii():
        return word
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", word)).translate(_LIGATURES)
    return unicodedata.normalize("NFC", plain)


def word_forms(raw: str, *, is_passage: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the searchable forms of a raw word, case folded, and whether each is a plain word.

    A compound comes first as a whole without its joints, then in parts: ``foo.barBaz`` gives
    ``foobarbaz``, ``foo``, ``barbaz``, ``bar``, ``baz``. So ``XK-320`` and ``XK320`` are the same
    word. Only plain words may be stemmed or dropped as stop words. Scripts without spaces give
    pairs of characters; a Han character without a Han neighbour is a form, too, because it may be a
    word.

    Passages are indexed with ``is_passage``, which adds letters and numbers apart (``sha`` and
    ``256`` of ``sha256``), and every single Han and Hangul character.
    """
    pieces = [piece for piece in _JOINT.split(raw) if piece]
    if pieces != [raw] and len(raw) <= MAX_LENGTH and (joined := join_parts(raw)):
        yield joined, joined.isalnum()
        runs = _RUN.findall(joined) if is_passage else ()
        if 1 < len(runs) <= _MOST_RUNS:  # the 3.11 of v3.11
            yield from ((run, False) for run in runs if run[0].isdecimal() and not run.isdecimal())
    for piece in pieces:
        names = [name for name in piece.split("_") if name]
        if names != [piece] and names and len(piece) <= MAX_LENGTH:
            joined = join_parts(piece)
            yield joined, joined.isalnum()
        for name in names:
            of_name = _unspaced if UNSPACED.search(name) else _cased
            yield from of_name(name, is_passage=is_passage)


def join_parts(raw: str) -> str:
    """Return a raw word without its inner joints, case folded: ``xk320`` for ``XK-320``.

    A dot or hyphen between two digits stays, because 3.11 is not 311; but 1,000 becomes 1000. Other
    numbers with commas are several numbers: the result is "".
    """
    if "," in raw:
        return raw.replace(",", "") if _THOUSANDS.fullmatch(raw) else ""
    return _INNER_JOINT.sub(_join, raw).casefold()


def _join(joint: re.Match[str]) -> str:
    before, after = joint.string[: joint.start()][-1:], joint.string[joint.end() :][:1]
    is_inner = before and after and not (before.isdecimal() and after.isdecimal())
    return "" if is_inner else joint[0].replace("\u2010", "-")


def split_runs(raw: str) -> list[str]:
    """Split a raw word into letters and numbers, case folded; return ``[]`` for a single run.

    ``RTX-4090`` gives ``rtx``, ``4090``.
    """
    if UNSPACED.search(raw):
        return []
    runs = _RUN.findall(join_parts(raw))
    return runs if 1 < len(runs) <= 2 * _MOST_RUNS else []


def number_within(raw: str) -> str:
    """Return the number after a single letter or ``0x``: 3.11 for ``v3.11``; "" without one."""
    match = _LETTER_AND_NUMBER.fullmatch(join_parts(raw))
    return match[1] if match else ""


def join_neighbours(raws: Sequence[str]) -> Iterator[tuple[range, str]]:
    """Yield two or three neighbouring words joined to one, case folded, and their positions.

    ``RTX 4090`` gives ``rtx4090``. Two numbers are never joined, and queries too long for a name
    give nothing.
    """
    words = [raw.casefold() if raw.isalnum() else "" for raw in raws]
    for first, joined in enumerate(words if len(words) <= _MOST_JOINED else ()):
        for last, word in enumerate(words[first + 1 : first + 3], first + 1):
            if not joined or not word or (joined[-1].isdecimal() and word[0].isdecimal()):
                break
            joined += word
            if len(joined) > MAX_LENGTH:
                break
            yield range(first, last + 1), joined


def _cased(name: str, *, is_passage: bool) -> Iterator[tuple[str, bool]]:
    yield name.casefold()[:MAX_LENGTH], True
    if len(name) > MAX_LENGTH:
        return
    humps: list[str] = []
    if not (name.islower() or name.isupper()):
        humps = CASED.findall(without_accents(name))  # [A-Z] has no accented capitals
    if len(humps) > 1:
        yield from ((hump.casefold(), True) for hump in humps if len(hump) > 1)
    if is_passage and not name.isalpha():
        runs = _RUN.findall(name)
        if 1 < len(runs) <= _MOST_RUNS:
            new = (run for run in runs if len(run) >= _LEAST_RUN and run not in humps)
            yield from ((run.casefold(), True) for run in new)


def _unspaced(name: str, *, is_passage: bool) -> Iterator[tuple[str, bool]]:
    """Yield overlapping pairs of characters of unspaced scripts, and other letters as words."""
    for number, piece in enumerate(re.split(f"({UNSPACED.pattern})", name)):
        letters = piece.casefold()
        if number % 2 == 0:
            yield from _cased(piece, is_passage=is_passage) if piece else ()
        elif len(letters) == 1:
            yield letters, False
        else:
            alone = re.findall(_HAN_OR_HANGUL if is_passage else _LONE_HAN, letters)
            pairs = (letters[at : at + 2] for at in range(len(letters) - 1))
            yield from ((form, False) for form in (*alone, *pairs))


def capital_name(raw: str) -> str:
    """Return a stop word in capitals as a name, in capitals: ``IT``, or ``US`` for ``U.S``.

    Return "" for other words. All other tokens are in lower case.
    """
    letters = _JOINT.sub("", raw)
    is_name = 1 < len(letters) <= MAX_LENGTH and letters.isalpha() and letters.isupper()
    return without_accents(letters) if is_name else ""


def is_in_capitals(raws: Sequence[str]) -> bool:
    """Return whether most words of a text are in capitals; then capitals do not mark a name."""
    return 2 * sum(map(str.isupper, raws)) > len(raws)


class Analyzer:
    """Fold words, drop stop words, stem the rest, and add the parts of compound words.

    ``language`` is a Snowball name such as ``english`` or ``german`` and applies to words in its
    letters; an unknown one raises :class:`ConfigError`. Words in letters of another language with a
    stemmer get that stemmer. ``is_passage`` is that of :func:`word_forms`; it also keeps stop words
    in capitals as tokens. Single letters and digits are words like any other. Safe to share between
    threads.
    """

    def __init__(self, language: str = "english", *, is_passage: bool = False) -> None:
        self.language, self._is_passage, self._rules = language, is_passage, word_rules(language)
        self._cached = lru_cache(_CACHED)(self._analyse)

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a text in order, with repetitions, in linear time."""
        return self.tokens_of(raw_words(text))

    def tokens_of(self, raws: Iterable[str]) -> list[str]:
        """Return the tokens of a text's raw words."""
        cached, tokens = self._cached, list[str]()
        for raw in raws:
            tokens += cached(raw) if len(raw) <= _SHORT else self._analyse(raw)
        return tokens

    def token(self, form: str, *, is_plain: bool = True) -> str | None:
        """Return the token of one of :func:`word_forms`; ``None`` for a stop word."""
        if not is_plain:
            return strip_accents(form)
        rules = self._rules
        if not form.isascii():
            form = form.replace("i\u0307", "i")  # a casefolded Turkish capital I with a dot
            script = SCRIPTS.match(form)
            rules = word_rules(script.lastgroup) if script and script.lastgroup else rules
        if rules.language == "english":
            form = strip_accents(form)
        return None if form in rules.stop_words else strip_accents(rules.stem(form))

    def _analyse(self, raw: str) -> tuple[str, ...]:
        forms: Iterable[tuple[str, bool]] = ((raw, True),)  # most words have a single form
        if not (raw.isascii() and raw.isalpha() and raw.islower() and len(raw) <= MAX_LENGTH):
            forms = word_forms(raw, is_passage=self._is_passage)
        analysed = [self.token(form, is_plain=plain) for form, plain in forms if form]
        if self._is_passage and None in analysed:
            analysed.append(capital_name(raw))
        return tuple([token for token in analysed if token])


_analyzer = lru_cache(None)(Analyzer)


def analyzers_of(languages: Iterable[str], *, is_passage: bool = False) -> list[Analyzer]:
    """Return an analyzer for each language; words in Latin letters have one of these, or English.

    ``""`` is for texts of unknown language.
    """
    latin = ("english" if one in _NOT_LATIN else one for one in languages)
    spoken = dict.fromkeys(latin) or ("english",)
    return [_analyzer(one, is_passage=is_passage) for one in spoken]


def fingerprint() -> str:
    """Identify the tokens of passages; an index with another fingerprint is built again."""
    return sha1_hex(f"{RULES}|{[' '.join(sorted(stop_words(one))) for one in LANGUAGES]}")


def analyse_passage(text: str, otherwise: Callable[[], str | None]) -> tuple[str, list[str]]:
    """Return the language of a passage, "" if unknown, and its tokens with repetitions.

    ``otherwise`` is called for the language if it cannot be detected from the passage's words.
    """
    raws = raw_words(text)
    language = detect_language(text, raws) or otherwise() or ""
    tokens = analyzers_of([language], is_passage=True)[0].tokens_of(raws)
    if is_in_capitals(raws):
        tokens = [token for token in tokens if not token.isupper()]
    return language, tokens


Term = tuple[str, ...]
"""The tokens of one word in several languages or spellings; ``rtx 4090`` requires both tokens."""


def query_terms(text: str, languages: Iterable[str]) -> list[Term]:
    """Return the terms of a query: each word's tokens in all languages, with repetitions."""
    return [term for _, terms in word_terms(text, tuple(languages)) for term in terms]


@lru_cache(maxsize=2_000)  # one search asks several times for the same text, and for its words
def word_terms(text: str, languages: tuple[str, ...]) -> list[tuple[str, list[Term]]]:
    """Return the raw words of a query with their terms; a stop word has none.

    A word has no token in a language in which it is a stop word. It is dropped altogether if it is
    a stop word of all the languages that have most stop words in the query. A stop word in capitals
    is kept as a name.
    """
    raws, analyzers = raw_words(text), analyzers_of(languages)
    dropped: frozenset[str] = frozenset()
    if len(analyzers) > 1:
        words, lists = {raw.casefold() for raw in raws}, [stop_words(a.language) for a in analyzers]
        most = max(len(words & common) for common in lists)
        likely = [common for common in lists if len(words & common) == most > 0]
        dropped = frozenset.intersection(*likely) if likely else dropped
    return list(zip(raws, terms_of_words(raws, analyzers, dropped), strict=True))


def other_spellings(text: str) -> list[str]:
    """Return names of a query joined or split differently, for engines with their own words.

    ``RTX 4090`` gives ``rtx4090``; ``XK-320`` gives ``xk320`` and ``xk 320``.
    """
    raws = raw_words(text)
    spellings = [joined for _, joined in join_neighbours(raws)]
    for raw in reversed(raws):
        spellings[:0] = [join_parts(raw), " ".join(split_runs(raw)), number_within(raw)]
    written = {raw.casefold() for raw in raws}
    return [one for one in dict.fromkeys(spellings) if one and one not in written]


def terms_of_words(
    raws: Sequence[str], analyzers: Sequence[Analyzer], dropped: frozenset[str] = frozenset()
) -> list[list[Term]]:
    """Return the terms of each raw word of a query; a stop word has no terms.

    ``dropped`` are additional stop words. The first term of a word is the whole word, joined or
    split, so ``RTX4090``, ``RTX-4090`` and ``RTX 4090`` find each other. The terms of its parts
    follow.
    """
    has_names = len(raws) < _CAPITALS or not is_in_capitals(raws)
    by_word = [_terms_of(raw, analyzers, dropped, has_names=has_names) for raw in raws]
    for places, joined in join_neighbours(raws):
        if by_word[places[0]] and (len(places) == 2 or by_word[places[1]]):
            also = _tokens_of(joined, analyzers)
            for terms in (by_word[place] for place in places if by_word[place]):
                terms[0] = tuple(dict.fromkeys((*terms[0], *also)))
    return by_word


def _terms_of(
    raw: str, analyzers: Sequence[Analyzer], dropped: frozenset[str], *, has_names: bool
) -> list[Term]:
    name = capital_name(raw) if has_names else ""
    is_common = name and any(one.token(name.casefold()) is None for one in analyzers)
    terms: list[Term] = [(name,)] if is_common else []
    for form, is_plain in word_forms(raw):
        if form and not (is_plain and form in dropped):
            terms += filter(None, [_tokens_of(form, analyzers, is_plain=is_plain)])
    if terms and not raw.isalpha():
        number = raw.replace(".", "") if _GROUPED.fullmatch(raw) else raw
        if number.isdecimal() and raw[0] != "0" and 4 < len(raw) <= _MOST_DIGITS:
            terms[0] += number, f"{int(number):,}".replace(",", " ")  # as in 50 000, 50.000
        apart = [_tokens_of(run, analyzers)[:1] for run in split_runs(raw)]
        if apart and all(apart):
            terms[0] = (*terms[0], " ".join(run for (run,) in apart))
        number = number_within(raw)
        if number and (number,) not in terms:
            terms.append((number,))
    return terms


def _tokens_of(form: str, analyzers: Sequence[Analyzer], *, is_plain: bool = True) -> Term:
    tokens = (analyzer.token(form, is_plain=is_plain) for analyzer in analyzers)
    return tuple(dict.fromkeys(filter(None, tokens)))
