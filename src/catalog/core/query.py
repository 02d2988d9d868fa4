"""Parse a typed query: plain words, quoted phrases, ``-exclusions``, typed sub-queries."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from catalog.core.errors import QueryError
from catalog.core.params import Mode
from catalog.core.text import compose, storable

_DASHES = "\\-\u2010-\u2015\u2212\uff0d"
_QUOTES = str.maketrans(dict.fromkeys("“”„‟«»＂‹›「」『』", '"'))
_PART = re.compile(
    rf"""
    (?P<minus>(?<!\S)[{_DASHES}](?=["\w]))?   # a minus right before a word or a quote
    (?: "(?P<phrase>[^"]*)" | (?P<word>[^\s"]+) | (?P<quote>") )
    """,
    re.VERBOSE,
)
_NOT = re.compile(  # "tea NOT coffee", but "what is NOT allowed"
    r"(?<!\S)(?!(?i:am|and|are|but|can|could|did|do|does|has|have|if|is|may|must|or|should|was|were"
    r"|why|will|would)\s)(\S+)\s+(AND\s+)?NOT\s+(?=(\w+)|\")"
)
_FIELD = re.compile(  # "from:ann", "#dev"
    r"(?i)(?<!\S)(?:[-+]?(?:author|ext|file|from|path|tags?|title|type):(?=\S)|#[a-z][\w-]*(?!\S))"
)
_LONG_DASHES = "\u2013\u2014\u2015"
_ASIDE_END = re.compile(rf"\w[{_LONG_DASHES}](?=[\s,.;:?!]|$)")  # of an aside —like this—
_LETTER = re.compile(r"[^\W_]")
_SEARCHABLE = re.compile(r"\w|[^\x00-\x7f]|[^\w\s]{2}")  # one ASCII sign alone is not
_ALONE = re.compile(r'(?<!\S)"[^"]*"(?=[,.;:?!]*(?:\s|$))')
_COMMAND = re.compile(  # "--all", "-v", "-std=c17", ".", "/etc", "./run", "|": a command line
    r"(?<!\S)(?:--\w|-[a-zA-Z](?!\S)|-[\w-]+=|[|.](?!\S)|[.~]?/\w)"
)
_COMMON_OPTIONS = """
    all aux classpath debug delete exec force help hup iname jar kill lah maxdepth mindepth mtime
    name newer nodes noout not path pedantic perm print prune quiet race recurse regex run
    shared size static term text type var verbose version wall werror wextra
"""  # words that common programs take after a single minus
_OPTIONS = frozenset(_COMMON_OPTIONS.split())
_LINE_BREAK = re.compile("\r\n|[\r\x85\u2028\u2029]")
_ZERO_WIDTH = r"\u00ad\u200b-\u200f\u2060\ufeff"
_INVISIBLE = re.compile(rf"[\s{_ZERO_WIDTH}]*")
_TYPED = re.compile(
    rf"""
    (?<!\w)"[^"\n]*"                         # what is quoted separates nothing
    | (?: (?:^|\n)(?:[^\S\n]|[{_ZERO_WIDTH}])* | \s/\s[\s{_ZERO_WIDTH}]* )
      (?P<kind>lex|vec|hyde)[^\S\n]*[:：]
    """,
    re.VERBOSE | re.IGNORECASE,
)

SubQueryKind = Literal["lex", "vec", "hyde"]
SubQueryOrigin = Literal["original", "expansion"]
_IMPORTANCE: tuple[SubQueryKind, ...] = ("vec", "lex", "hyde")


MOST_PARTS = 10  # typed parts of a query: each is a search of its own
MOST_PHRASES = 16  # phrases of a query, and exclusions: each is looked for in every passage
MOST_TYPED = 32  # words of a query: a longer text was pasted, and its quotes are the author's
_FEW_BESIDE = 6  # words beside a phrase that binds


@dataclass(frozen=True, slots=True)
class SubQuery:
    """One thing to search for in one leg.

    ``lex`` is for the lexical leg, ``vec`` for the vector leg embedded as a query, ``hyde`` for the
    vector leg embedded as a document. Each hit must contain the sub-query's ``phrases``.
    """

    kind: SubQueryKind
    text: str
    phrases: tuple[str, ...] = ()
    origin: SubQueryOrigin = "original"

    def is_for(self, mode: Mode) -> bool:
        """Return whether the mode has the leg of this sub-query."""
        return mode == "hybrid" or (self.kind == "lex") == (mode == "lexical")


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """The parts of a query.

    ``text`` is its topic: the words and the phrases' words, without the exclusions. No hit contains
    ``exclusions``, every hit contains the ``required`` phrases. ``is_typed``: the user wrote the
    parts, and each has its own phrases. ``readings`` are notes on parts with two possible readings.
    Passages that contain ``loose`` phrases rank higher.
    """

    original: str
    text: str
    parts: tuple[SubQuery, ...]
    exclusions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_typed: bool = False
    readings: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()

    @property
    def lexical_text(self) -> str:
        """Return the text for the search by words, with corrected spelling."""
        lexical = [part.text for part in self.parts if part.kind == "lex"]
        return lexical[0] if lexical and not self.is_typed else self.words

    @property
    def phrases(self) -> tuple[str, ...]:
        """Return the quoted phrases of all parts."""
        return tuple(dict.fromkeys(phrase for part in self.parts for phrase in part.phrases))

    @property
    def required(self) -> tuple[str, ...]:
        """Return the phrases that every hit must contain, whichever leg finds it."""
        return () if self.is_typed else self.phrases

    @property
    def words(self) -> str:
        """Return all texts to search for, without repetitions: the words to mark in a passage."""
        return " ".join(dict.fromkeys(part.text for part in self.parts))

    def without_phrases(self, loose: Collection[str], reading: str) -> ParsedQuery:
        """Return the query with the loose phrases as plain words, and a reading that says so.

        >>> parse_query('"api keys"', max_chars=99).without_phrases(["api keys"], "no").required
        ()
        """
        parts = tuple(
            replace(part, phrases=tuple(one for one in part.phrases if one not in loose))
            for part in self.parts
        )
        return replace(self, parts=parts, readings=(*self.readings, reading))

    def about(self, mode: Mode) -> str:
        """Return the one text that represents the query in a mode.

        It is the first ``vec`` of the mode, else ``lex``, else ``hyde``, else ``text``.
        """
        return _most_important([part for part in self.parts if part.is_for(mode)], self.text)


def _most_important(parts: Iterable[SubQuery], default: str = "") -> str:
    ranked = sorted(parts, key=lambda part: _IMPORTANCE.index(part.kind))
    return ranked[0].text if ranked else default


def parse_query(query: str, *, max_chars: int, flags: Collection[str] = ()) -> ParsedQuery:
    """Trim a query, compose it (NFC), take it apart and cut it to ``max_chars``.

    ``"…"`` is a phrase when it holds two words or more, or one word with nothing before and but
    punctuation after the quotes, as ``open("x")`` has not; ``-word`` excludes when the word can
    hardly be a flag or a number (see :func:`_is_flag`) and is not in ``flags``; ``-"a phrase"``
    when there is any letter or digit in it. ``NOT`` is a minus between words that are not both in
    capitals. The rest is plain text; readings say so of ``tag:dev`` and ``SQL NOT NULL``.

    A text that begins with ``lex:``, ``vec:`` or ``hyde:`` is typed: each part, on its own line or
    after `` / `` outside of quotes, goes to the leg it names; only ``lex:`` has phrases and
    exclusions. The first part of a leg counts as the user's own query there.

    In a text of more than :data:`MOST_TYPED` words, which was pasted, quotes and minus are plain
    text. Where quotes are the smaller part of a query with more than a few other words, they are
    ``loose``.

    A cut is made between words where its last half has white space, and never within an
    exclusion; a pasted text keeps both ends. Raises :class:`QueryError` when nothing is left to
    look for, for a typed part without a text, and for more than :data:`MOST_PARTS` parts or
    :data:`MOST_PHRASES` exclusions.
    """
    whole = _clean(query)
    if whole == "":
        raise QueryError("the query is empty")
    text = whole[: cut_position(whole, max_chars)]
    typed = _split_typed(whole, len(text))
    is_pasted = not typed and len(text.split()) > MOST_TYPED
    if is_pasted and text != whole:  # a log ends with its error, a mail with its question
        text = whole[: cut_position(whole, max_chars // 2)].rstrip()
        text += " " + re.split(r"\s", whole[len(text) + 1 - max_chars :], maxsplit=1)[-1]
    cut = f"query cut from {len(whole):,} to {len(text):,} characters"
    notes = [cut] if text != whole else []
    if typed:
        read = [_parse_terms(one, flags) if kind == "lex" else _Terms(one) for kind, one in typed]
        parts, legs = [], set[bool]()
        for (kind, _), terms in zip(typed, read, strict=True):
            origin: SubQueryOrigin = "expansion" if (kind == "lex") in legs else "original"
            parts.append(SubQuery(kind, terms.text, terms.phrases, origin))
            legs.add(kind == "lex")
    else:
        read = [_loosen(_parse_terms(_one_line(text), flags, is_pasted), is_pasted)]
        parts = [SubQuery("lex", read[0].text, read[0].phrases), SubQuery("vec", read[0].text)]
    for part, terms in zip(parts, read, strict=False):
        if not _SEARCHABLE.search(terms.text):
            name = f"the query {part.kind}:" if typed else "the query"
            if terms.exclusions:
                raise QueryError(
                    f"{name} only excludes. Add something to look for; to look for the word "
                    f'itself, quote it: "-{terms.exclusions[0]}"'
                )
            raise QueryError(f"{name} contains nothing to search for")
    exclusions = tuple(word for terms in read for word in terms.exclusions)
    if exclusions:
        notes.append(f"excluding {', '.join(exclusions)}")
    if typed:
        notes.append(", ".join(f"{part.kind}: {part.text}" for part in parts))
    readings: tuple[str, ...] = ()
    if plain := list(dict.fromkeys(flag for terms in read for flag in terms.flags)):
        how = f'to exclude, use quotes: -"{re.sub("-|NOT ", "", plain[0], count=1)}"'
        words = "a word" if len(plain) == 1 else "words"
        readings = (f"{', '.join(plain)} read as {words}; {how}",)
    if not typed and not is_pasted and (field := _FIELD.search(text)):
        readings += (f"{field[0]} read as a word; to filter: filters='tags=dev', file_type, name",)
    return ParsedQuery(
        text,
        _most_important(parts),
        tuple(parts),
        exclusions,
        tuple(notes),
        is_typed=bool(typed),
        readings=readings,
        loose=read[0].loose,
    )


class _Terms(NamedTuple):
    text: str
    phrases: tuple[str, ...] = ()
    exclusions: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()


def _loosen(terms: _Terms, is_pasted: bool) -> _Terms:
    if is_pasted:
        return terms._replace(phrases=())
    quoted = sum(len(phrase.split()) for phrase in terms.phrases)
    beside = len(terms.text.split()) - quoted
    if beside <= max(_FEW_BESIDE, quoted):
        return terms
    return terms._replace(phrases=(), loose=terms.phrases)


def _parse_terms(text: str, known_flags: Collection[str], is_pasted: bool = False) -> _Terms:
    words, phrases, exclusions, flags = list[str](), list[str](), list[str](), list[str]()

    def read_not(found: re.Match[str]) -> str:
        if found[2] or not found[3] or not (found[1] + found[3]).isupper():
            return f"{found[1]} -"
        flags.append(f"NOT {found[3]}")  # of a name or heading: "the SQL NOT NULL constraint"
        return found[0]

    text = text if is_pasted else _NOT.sub(read_not, text)
    parts = list(_PART.finditer(text))
    is_command = _COMMAND.search(text) or any(
        part["minus"] and (part["word"] or "").lower() in _OPTIONS for part in parts
    )
    last_aside = max((end.start() for end in _ASIDE_END.finditer(text)), default=0)
    for part in parts:
        is_aside = (part["minus"] or "-") in _LONG_DASHES and part.start() <= last_aside
        is_minus = part["minus"] and not (is_pasted or _FIELD.match(text, part.start()))
        if part["phrase"] is not None:
            content = _one_line(part["phrase"])
            has_letter = _LETTER.search(content)
            if is_minus:
                exclusions += [content] if has_letter else []
                continue
            words.append(content)
            if " " in content or (has_letter and _ALONE.match(text, part.start())):
                phrases.append(content)
            continue
        word = (part["word"] or "").rstrip(",.;:?!)")
        if not is_minus or is_aside or re.search(r"\w{2}", word) is None:
            words.append(part.group())
        elif is_command or word in known_flags or _is_flag(word):
            words.append(part.group())
            flags.append(f"-{word}")
        else:
            exclusions.append(word)
    phrases, exclusions = list(dict.fromkeys(phrases)), list(dict.fromkeys(exclusions))
    if len(phrases) > MOST_PHRASES:  # pasted code, hardly phrases to look for
        phrases = []
    if len(exclusions) > MOST_PHRASES:
        raise QueryError(f"a query can exclude at most {MOST_PHRASES} words or phrases")
    return _Terms(_one_line(" ".join(words)), tuple(phrases), tuple(exclusions), tuple(flags))


def _is_flag(word: str) -> bool:
    """Return whether a word after a minus may be a flag or a number: ``rf``, ``O2``, ``40``."""
    if not word.isascii():
        return any(char.isdigit() for char in word)
    if re.fullmatch(r"[a-z]+(?:['.][a-z]+)*", word, re.IGNORECASE) is None or len(word) < 3:
        return True
    is_word = word.isupper() or re.search("[aeiouy]", word, re.IGNORECASE)
    return word.lower() in _OPTIONS or not is_word


def cut_position(text: str, limit: int) -> int:
    """Return where to cut a query: at ``limit``, or before it where a word ends."""
    if len(text) <= limit:
        return len(text)
    end = limit
    if not (text[limit - 1].isspace() or text[limit].isspace()):
        word = limit - len(text[:limit].split()[-1])
        end = word if word > limit // 2 else limit
    for part in _PART.finditer(text):
        if part["minus"] and part.start() < end < part.end():
            return part.start()
    return end


def _split_typed(text: str, end: int) -> list[tuple[SubQueryKind, str]]:
    """Return the typed parts, up to ``end``, if the text begins with one, else nothing."""
    starts = [match for match in _TYPED.finditer(text) if match["kind"]]
    if not starts or starts[0].start() > 0:
        return []
    stops = [start.start() for start in starts[1:]] + [len(text)]
    parts: list[tuple[SubQueryKind, str]] = []
    for start, stop in zip(starts, stops, strict=True):
        kind: SubQueryKind = start["kind"].lower()  # type: ignore[assignment]  # by the pattern
        if not text[start.end() : stop].strip():
            raise QueryError(f"{kind}: has no text in this query")
        part = _one_line(text[start.end() : min(stop, end)])
        if part or not parts:
            parts.append((kind, part))
    parts = list(dict.fromkeys(parts))
    if len(parts) > MOST_PARTS:
        raise QueryError(f"a query can have at most {MOST_PARTS} typed parts, not {len(parts)}")
    return parts


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _clean(query: str) -> str:
    """Compose and trim the query, with one kind of line break and of quotes, without controls."""
    lines = _LINE_BREAK.sub("\n", query).translate(_QUOTES)  # breaks separate typed sub-queries
    printable = re.sub("[\x00-\x09\x0b-\x1f\x7f-\x9f]", " ", lines)
    return _INVISIBLE.sub("", compose(storable(printable)).strip(), count=1)
