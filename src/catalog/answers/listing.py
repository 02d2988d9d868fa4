"""Answer "which contracts mention X?" and "how many mails did Ilse send in March?" from the index.

A search stops at its best passages, so it cannot count. These questions are recognised by their
form, in English and German, and answered from :class:`DocumentCatalog` without a language model:
the number of documents that meet all conditions, and then the first of them, each with a sentence
that contains the words. A noun names documents by their type, a folder, a tag or their titles.
``listing.toml`` has the words of these questions.
"""

from __future__ import annotations

import re
import tomllib
from calendar import month_name
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog.answers.cited_sources import Sources, find_quote
from catalog.answers.extracting import Candidate, rank_candidates
from catalog.answers.neutralising import neutralise
from catalog.answers.statements import turns_meaning
from catalog.core import filters
from catalog.core.answers import Answer, AnswerEvent, AnswerSentence
from catalog.core.dates import date_span, format_timestamp, read_bound, read_written_date
from catalog.core.filters import And, Filter, Op, Or
from catalog.core.params import MAX_DOCUMENTS, AskParams, BrowseParams, SearchParams
from catalog.core.results import CatalogPage, SearchResult, SearchResults
from catalog.library.browse import DocumentCatalog
from catalog.retrieval.query_words import query_coverage
from catalog.store.lexical.analysis import analyzers_of
from catalog.store.lexical.languages import stop_words
from catalog.store.listing import allowed_documents, count_by_value
from catalog.store.restriction import Restriction

if TYPE_CHECKING:
    from catalog.retrieval.search import Searcher

_TABLE = tomllib.loads(files("catalog.answers").joinpath("listing.toml").read_text("utf-8"))
_WHENS = ("since", "after", "before", "until", "in")
_MONTHS = {name.casefold(): name for name in month_name if name} | _TABLE["months"]
_WORDS = {"month": f"(?:{'|'.join(_MONTHS)})", "date": ""}
_WORDS |= {name: f"(?:{'|'.join(words)})" for name, words in _TABLE["words"].items()}
_WORDS["date"] = _TABLE["forms"]["date"] % _WORDS
_FORMS = {name: re.compile(form % _WORDS, re.I) for name, form in _TABLE["forms"].items()}
_PLAIN = [(re.compile(form % _WORDS, re.I), plain) for form, plain in _TABLE["plain"]]
_QUOTED = re.compile(r'["“”„«»]([^"“”„«»]+)["“”„«»]')
_WORD = re.compile(r"\d{1,3}(?: \d{3})+(?!\w)|\w+")
_BEGINNING = re.compile(r"[^\WäöüÄÖÜ]{0,3}")  # an umlaut may be lacking in the singular
_Span = tuple[str | None, str | None]  # the first day, and the day after the last
_LONGEST = 500  # characters of a question that counts
_LANGUAGES = ("english", "german")
_LISTED = 10  # documents, where the call does not say how many
_MOST_PHRASES = 12  # a search takes 16
_KIND = re.compile("(?:e-?)?mails?|(?:pdf|csv)s?", re.I)  # named even without any
_EVERY: dict[str, Any] = {"mode": "lexical", "rerank": False, "expand": False}
_EVERY |= {"similarity_threshold": 0.0, "all_copies": True}  # every passage with the words
_STOP_WORDS = stop_words("english") | stop_words("german")
_COUNTS = ("how many", "the number", "what is the number", "count", "list", "wie")
_NOTHING = Or(())
_PEOPLE = ("author", "to")


class ListingQuestion(NamedTuple):
    """A question for the documents that a ``noun`` names and that meet all conditions.

    One passage contains all ``phrases``. ``conditions`` are pairs of a field and a value. ``when``
    is a word such as *since* and a date, *between* and two, or empty. ``unread`` is what cannot be
    counted. ``is_exact``: "no document" is an answer, where *which notes discuss …* may be about a
    meaning. ``asks`` are its first words, such as *how many*, or "".
    """

    noun: str
    phrases: tuple[str, ...]
    is_exact: bool
    conditions: tuple[tuple[str, str], ...]
    when: tuple[str, ...]
    unread: str
    asks: str


def read_listing(question: str) -> ListingQuestion | None:
    """Return the list that a question asks for; ``None`` for other questions.

    >>> asked = read_listing('How many notes mention an indemnity clause since 2025?')
    >>> asked.noun, asked.phrases, asked.when
    ('notes', ('indemnity clause',), ('since', '2025'))
    >>> read_listing('Is there an indemnity clause?')
    """
    text = " ".join(question.split()).rstrip("?.! ")
    opened = _FORMS["opening"].match(text)
    if opened is None or len(text) > _LONGEST or opened["noun"].casefold() in _STOP_WORDS:
        return None
    rest = text[opened.end() :].strip(" ,")
    for form, plain in _PLAIN:
        rest = form.sub(plain, rest)
    conditions: list[tuple[str, str]] = []
    when: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    is_exact = True
    while rest:
        if match := _FORMS["tag"].match(rest):
            conditions.append(("tags", (match["name"] or match["hash"]).strip("\"'#")))
        elif not when and (match := _FORMS["when"].match(rest)) and (when := _read_when(match)):
            pass
        elif match := _FORMS["folder"].match(rest):
            conditions.append(("path", match["name"] or match["other"]))
        elif match := _FORMS["person"].match(rest):
            conditions.append(("author" if match["author"] else "to", match["who"].strip('"')))
        elif match := _FORMS["mention"].match(rest):
            what, is_exact = match["what"], match["exact"] is not None
            ends = [one for one in _FORMS["when"].finditer(what, 1) if one.end() == len(what)]
            if not when and ends and (when := _read_when(ends[0])):
                what = what[: ends[0].start()].strip()
            if not (phrases := _read_phrases(what)):
                break
        elif not (match := _FORMS["filler"].match(rest)):
            break
        rest = rest[match.end() :].lstrip(" ,")
    asks = (opened["asks"] or opened["all"] or "").casefold()
    is_told = not rest and is_exact and (phrases or "tags" in dict(conditions))
    if not asks and not is_told and not (conditions and "mail" in opened["noun"].casefold()):
        return None
    return ListingQuestion(opened["noun"], phrases, is_exact, tuple(conditions), when, rest, asks)


def _read_phrases(what: str) -> tuple[str, ...]:
    """Return the words that a passage must contain; none for what a list of words cannot say."""
    what = _QUOTED.sub(r'"\1"', what)
    parts = [part.strip("'‘’ ") for part in _FORMS["joint"].split(what)]
    if _FORMS["unlike"].search(_QUOTED.sub("", what)) or len(parts) > _MOST_PHRASES:
        return ()
    parts = [part[_FORMS["before"].match(part).end() :] for part in parts]  # type: ignore[union-attr]
    if any(part.count('"') > 1 and not _QUOTED.fullmatch(part) for part in parts):
        return ()
    phrases = dict.fromkeys(part.replace('"', " ").strip("'‘’ ") for part in parts)
    return tuple(phrases) if all(map(_WORD.search, phrases)) else ()


def _read_when(match: re.Match[str]) -> tuple[str, ...]:
    """Return the word and the dates, with English months; nothing for days that do not exist."""
    dates = [match["first"], match["last"]] if match["first"] else [match["date"]]
    plain = (" ".join(_MONTHS.get(it.casefold(), it) for it in one.split()) for one in dates)
    kind = next((name for name in _WHENS if match[name]), "between")
    when = (kind, *(re.sub(r"(?<=\d)\.(?= )", "", one) for one in plain))
    return when if _read_span(when) or _read_span(when, 2024) else ()


def _read_span(when: Sequence[str], year: int | None = None) -> _Span | None:
    """Return the days of a date; ``year`` is that of dates without one, which else have none."""
    ends: list[tuple[str, str]] = []
    told = re.findall(r"\b\d{4}\b", when[-1])  # of "February and March 2026"
    for date in when[1:]:
        first = read_written_date(date) or read_written_date(f"{date} {[*told, year][0]}")
        if not first or (span := date_span(first)) is None:
            return None
        ends.append((first, format_timestamp(span[1])[:10]))
    (first, second), (_, last) = ends[0], ends[-1]
    spans: dict[str, _Span] = {"since": (first, None), "after": (second, None)}
    spans |= {"before": (None, first), "until": (None, second)}
    return spans.get(when[0], (first, last))


def answer_listing(
    service: Searcher, params: AskParams, listing: ListingQuestion
) -> Generator[AnswerEvent, None, Answer | str | None]:
    """Yield the events of an answer and return it, why it was not counted, or ``None``."""
    asked, known = listing.phrases, _Values(service, params)
    is_narrowed = bool(asked or listing.conditions or listing.when)
    is_plural = listing.noun[-1:] == "s" or listing.asks[:3] in ("wel", "wie")
    if listing.unread and not is_narrowed and not is_plural:
        return None
    named = known.name_documents(listing.noun)
    told = "documents are counted by words, tags, folders, types, senders and dates, and "
    told = f"this was searched, not counted: {told}"
    counts = listing.asks.startswith(_COUNTS)
    if named is None or (named[0].startswith("with") and not (counts or is_narrowed)):
        is_meant = (counts and listing.is_exact and asked) or "tags" in dict(listing.conditions)
        why = f"{told}no type, folder, tag or title is called {listing.noun!r}"
        return why if is_meant else None
    unknown = [it for field, it in listing.conditions if field in _PEOPLE and known.is_nobody(it)]
    if listing.unread or unknown:
        is_meant = (counts and is_narrowed) or named[0].partition(" ")[0] in ("", "in", "of")
        if not named[0] or listing.asks in ("", "what"):  # "Which documents do I need?"
            is_meant = asked or _FORMS["mentions"].search(listing.unread) is not None
        is_meant = is_meant or (not listing.unread and "mail" in listing.noun.casefold())
        why = f"{listing.unread!r} is none of them"
        why = why if listing.unread else f"no author, sender or receiver is called {unknown[0]!r}"
        return f"{told}{why}" if is_meant else None
    about, given = [named[0]], [named[1], filters.parse_filters(params.filters)]
    for field, name in listing.conditions:
        about.append(f'{_FIELDS[field][0]} "{name}"')
        given.append(known.having(field, name))
    counter = _Counter(service, params, And(tuple(one for one in given if one is not None)))
    when, page = counter.count(asked, listing.when)
    if not page.total and not listing.is_exact:
        return None
    whole = _QUOTED.findall(" ".join(params.question.split()))
    loose = [it for it in asked if " " in it and it not in whole and not _WORD.fullmatch(it)]
    if not page.total and loose:
        every = dict.fromkeys(
            w for it in asked for w in (_WORD.findall(it) if it in loose else [it])
        )
        asked = tuple(one for one in every if one.casefold() not in _STOP_WORDS)[:_MOST_PHRASES]
        when, page = counter.count(asked, listing.when)
        if not page.total or len(asked) == 1:
            return f"{told}no passage of these has {loose[0]!r}; quoted words are always counted"
    results = counter.search(asked, page)
    yield AnswerEvent("results", results=results)
    sources = Sources(results, service.parts.settings.answers.citations)
    first = {one.source_doc_id: one for one in reversed(results.results)}
    headline = _headline([*about, when], _quote(asked, page.total, results), page.total)
    sentences = [AnswerSentence(text=headline, citations=(), supported=True)]
    for entry in page.entries:
        found = first.get(entry.source_doc_id)
        if found is None:  # a passage of more than a search may return
            line = AnswerSentence(text=entry.path, citations=(), supported=True, breaks="\n")
        else:
            times = f" ({entry.matching:,} passages)" if (entry.matching or 1) > 1 else ""
            line = _line(found, found.title + times, asked or (found.title,))
            line = sources.cite(line)
        sentences.append(line)
    yield from (AnswerEvent("sentence", sentence=one) for one in sentences)
    rest = page.total - len(page.entries)
    more = f"{rest} more: ask with --top-k {min(page.total, MAX_DOCUMENTS)}"
    notes = (*page.notes, *([more] if rest else [])) if page.total else ()
    answer = Answer(params.question, tuple(sentences), sources.of(sentences), results, notes=notes)
    return replace(answer, certainty="exact", agent=params.agent)


def _is_form(name: str, noun: str) -> bool:
    """Return whether a folder or tag is named by a noun: ``01-contracts`` by *contract*."""
    words = re.findall(r"[^\W\d_]+", name)
    return name == noun or (len(words) == 1 and _share_stem(name, noun))


def _share_stem(one: str, other: str) -> bool:
    return any({*it.tokens(one)} & {*it.tokens(other)} for it in analyzers_of(_LANGUAGES))


def _is_called(person: str, name: str) -> bool:
    return {*_WORD.findall(name.casefold())} <= {*_WORD.findall(person.casefold())}


_FIELDS: Mapping[str, tuple[str, Callable[[str, str], bool]]] = {
    "tags": ("tagged", lambda tag, name: tag.casefold() == name.casefold()),
    "path": (
        "in the folder",
        lambda path, name: any(_is_form(part, name) for part in path.split("/")[:-1]),
    ),
    "author": ("from", _is_called),
    "to": ("to", _is_called),
}


class _Values:
    """The values of fields that the documents of a question have, as conditions on documents."""

    def __init__(self, service: Searcher, params: AskParams) -> None:
        self._database = service.library.database
        self._dataset, self._seen = service.library.seen_datasets(params.role, params.dataset)

    def name_documents(self, noun: str) -> tuple[str, Filter | None] | None:
        """Return what a noun names, in words and as a condition; ``None`` if it names nothing."""
        is_any = _FORMS["documents"].fullmatch(noun) is not None
        kind, of_kind = filters.file_type_filter(noun), f"of type {noun.casefold().rstrip('s')}"
        if not (is_any or noun == "words") and self._read(kind, "file_type"):
            return of_kind, kind
        if (folder := self.having("path", noun)) != _NOTHING:
            return f'in the folder "{noun}"', folder
        if is_any:
            return "", None
        if tags := self._values("tags", noun, _is_form):
            return f'tagged "{noun}"', filters.condition("tags", Op.IN, tags)
        titles = self._values("title", noun, _share_stem)
        if noun[-1:] == "s":  # "Foods that heal" is no food
            titles = [one for one in titles if noun.casefold() not in one.casefold()]
        if len(titles) > 1:  # one may be about such documents
            return f'with "{noun}" in the title', filters.condition("title", Op.IN, titles)
        return (of_kind, _NOTHING) if _KIND.fullmatch(noun) else None

    def having(self, field: str, name: str) -> Or:
        """Return the condition to have a value that a name means; without any, nothing."""
        values = self._values(field, name, _FIELDS[field][1])
        return Or((filters.condition(field, Op.IN, values),)) if values else _NOTHING

    def is_nobody(self, name: str) -> bool:
        """Return whether a name is in no author, sender or receiver."""
        return all(self.having(one, name) == _NOTHING for one in _PEOPLE)

    def _values(self, field: str, name: str, is_meant: Callable[[str, str], bool]) -> list[str]:
        begin = _BEGINNING.match(name)[0]  # type: ignore[index]
        values = self._read(filters.condition(field, Op.TEXT_MATCH_INSENSITIVE, begin), field)
        return [one for one in values if is_meant(one, name)]

    def _read(self, tree: Filter, field: str) -> list[str]:
        allowed = allowed_documents(Restriction(self._dataset, self._seen, tree))
        with self._database.read() as connection:
            return list(count_by_value(connection, allowed, field))


class _Counter:
    """Count the documents that meet a condition, and search their passages."""

    def __init__(self, service: Searcher, params: AskParams, tree: Filter) -> None:
        self._service = service
        names = [one.name for one in fields(BrowseParams) if hasattr(params, one.name)]
        self._asked = {name: getattr(params, name) for name in names} | {"filters": tree}
        self._limit = min(params.top_k or _LISTED, MAX_DOCUMENTS)

    def count(self, phrases: tuple[str, ...], when: tuple[str, ...]) -> tuple[str, CatalogPage]:
        """Return the dates in words, and the documents; a date without a year is in any year."""
        about = f"dated {when[0]} {' and '.join(when[1:])}".replace(" in ", " ") if when else ""
        span = _read_span(when) if when else (None, None)
        if span is not None:
            return about, self._page(phrases, span)
        dated = ("1000", None)  # whatever has a date
        newest = self._page(phrases, dated, sort="modified", limit=1)
        oldest = self._page(phrases, dated, sort="modified", offset=max(0, newest.total - 1))
        years = [int(str(it.entries[0].date)[:4]) if it.total else 0 for it in (oldest, newest)]
        spans = {year: _read_span(when, year) for year in range(years[1], years[0] - 1, -1)}
        found = {year: self._page(phrases, span) for year, span in spans.items() if span}
        found = {year: page for year, page in found.items() if page.total}
        by_year = ", ".join(f"{year}: {page.total:,}" for year, page in found.items())
        entries = [entry for page in found.values() for entry in page.entries][: self._limit]
        total = sum(page.total for page in found.values())
        whole = newest.model_copy(update={"entries": tuple(entries), "total": total})
        return f"{about} ({by_year})" if found else about, whole

    def _page(
        self, phrases: tuple[str, ...], span: _Span = (None, None), **more: Any
    ) -> CatalogPage:
        asked = {"limit": self._limit, **self._asked, **more}
        for name, bound, at in (("after", span[0], -1), ("before", span[1], 0)):
            bounds = [one for one in (bound, asked[name]) if one is not None]
            bounds.sort(key=lambda one: str(read_bound("date", one)))
            asked[name] = bounds[at] if bounds else None
        return DocumentCatalog(self._service.library).query(containing=phrases, **asked)

    def search(self, phrases: tuple[str, ...], page: CatalogPage) -> SearchResults:
        """Return passages of the page with the phrases, or with words of titles, best first."""
        titles = " ".join(_WORD.findall(" ".join(entry.title for entry in page.entries)))
        search = SearchParams(
            " ".join(f'"{one}"' for one in phrases) or titles or "nothing",
            docs=[f"{entry.dataset}:{entry.path}" for entry in page.entries] or None,
            top_k=min(1000, max(10, sum(entry.matching or 4 for entry in page.entries))),
            **_EVERY,
            **self._asked,
        )
        return self._service.run(search)


def _quote(phrases: Sequence[str], total: int, results: SearchResults) -> list[str]:
    """Quote phrases; add "or a form of it" if some documents may have only another form."""
    parts = [(one, " ".join((one.title, *one.sections, one.text))) for one in results]
    quoted = []
    for phrase in phrases:
        typed = r"(?<!\w)" + r"[\W_]+".join(map(re.escape, phrase.split())) + r"(?!\w)"
        having = {one.source_doc_id for one, text in parts if re.search(typed, text, re.I)}
        is_typed = len(having) >= total or phrase.upper() == phrase.lower()
        quoted.append(f'"{phrase}"' + ("" if is_typed else " or a form of it"))
    return quoted


def _headline(about: Sequence[str], quoted: Sequence[str], total: int) -> str:
    words = " and ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))
    where = " in one passage" if len(quoted) > 1 else ""
    number = f"{total:,}" if total else "No" if words else "no"
    some = " ".join(filter(None, [number, "documents" if total > 1 else "document", *about]))
    if not words:
        return f"There {'are' if total > 1 else 'is'} {some}."
    return f"{some} contain{'' if total > 1 else 's'} {words}{where}."


def _line(result: SearchResult, name: str, phrases: tuple[str, ...]) -> AnswerSentence:
    """Return the statements of a passage that contain the phrases; without one, the line."""
    found: dict[int, Candidate] = {}
    for phrase in phrases:
        for best in rank_candidates(phrase, [result])[:1]:
            found |= {best.start: best} if query_coverage(phrase, best.text, ()) else {}
    spans = [(one.start, one.end) for one in found.values()]
    start, end = spans[0] if spans else find_quote(result, " ".join(phrases))
    quote = neutralise(" ".join(result.text[start:end].lstrip("#>-*+ ").split()), [result])
    above = [part for one in found.values() for part in one.context.split(" › ") if part]
    return AnswerSentence(
        text=" … ".join(one.text for one in found.values()) or quote,
        context=" › ".join(dict.fromkeys([name, *filter(turns_meaning, above)])),
        citations=(result.rank,),
        supported=True,
        breaks="\n",
        span=(start, end),
    )
