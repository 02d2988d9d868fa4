"""Answer "how many documents mention X?" and "which documents mention X?" exactly, from the index.

A search stops at its best passages, so it cannot count. These questions are recognised by their
form, in English, and answered from :class:`DocumentCatalog` without a language model: the number of
documents that contain the words, and then the first documents, each with a sentence that contains
them.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, NamedTuple

from catalog.answers.cited_sources import Sources, find_quote
from catalog.answers.neutralising import neutralise
from catalog.answers.statements import Statement, read_statements, turns_meaning
from catalog.core.answers import Answer, AnswerEvent, AnswerSentence
from catalog.core.params import MAX_DOCUMENTS, AskParams, BrowseParams, SearchParams
from catalog.core.results import CatalogPage, SearchResult, SearchResults
from catalog.library.browse import DocumentCatalog
from catalog.retrieval.query_words import language_of_words, query_words
from catalog.store.lexical.languages import stop_words

if TYPE_CHECKING:
    from catalog.retrieval.search import Searcher

_DOCUMENTS = (
    "documents?|docs?|files?|notes?|pages?|papers?|articles?|reports?|texts?|sources?|e?-?mails?"
)
_MAIL = re.compile(r"(?:how many|which|what|all|every|each|the|my|our|these|of) e?-?mails?\b", re.I)
_CONDITION = re.compile(
    r"(?:\b(?:not|or|without|except|but|since|before|after|in \d{4})|n['’]t)\b", re.I
)
_MENTION = "mention(?:s|ed|ing)?|contain(?:s|ing)?|refer(?:s|ring)? to"
_SAY = "say(?:s|ing)?|state[sd]?|discuss(?:es|ed|ing)?|talks? about|talking about"
_WHICH = "how many|which|what|(?:list|show me|show|find|give me)(?: all| every| each)?(?: the| my)?"
_ASKED = re.compile(
    rf"(?:{_WHICH})(?: of)?(?: the| my| our| these)? (?:{_DOCUMENTS})(?: there are)?"
    rf"(?: that| which)? (?:(?P<exact>{_MENTION})|{_SAY})(?: that)? (?P<what>\S.*)",
    re.IGNORECASE,
)
_ASKED_OF = re.compile(
    rf"(?:in )?(?:how many|which|what) (?:{_DOCUMENTS}) (?:is|are|does|do) (?P<what>\S.*?) "
    r"(?P<exact>mentioned|contained|occur|appear|referred to)(?: in)?",
    re.IGNORECASE,
)
_LOOSE = re.compile(
    rf"(?:in )?(?:how many times|(?:{_WHICH})(?: of)?(?: the| my| our| these)? (?:{_DOCUMENTS}))\b"
    rf".*?\b(?:{_MENTION})\b",
    re.IGNORECASE,
)
_BEFORE = re.compile(r"(?:the |an? |any )?(?:(?:words?|phrases?|terms?|names?) )?", re.IGNORECASE)
_QUOTED = re.compile(r'["“”„«»]([^"“”„«»]+)["“”„«»]')
_Rank = tuple[int, int, int]
_LISTED = 10  # documents, where the call does not say how many
_MOST_PHRASES = 12  # a search takes 16


class ListingQuestion(NamedTuple):
    """A question for a list: a passage must contain all its ``phrases``.

    ``is_exact``: the question is about these words, so "no document" is an answer. A question such
    as "which notes discuss …" may be about their meaning. ``file_type`` is ``mail`` if the question
    is about mail alone.
    """

    phrases: tuple[str, ...]
    is_exact: bool
    file_type: str | None = None


def read_listing(question: str) -> ListingQuestion | None:
    """Return the list that a question asks for; ``None`` for other questions.

    >>> read_listing('How many notes mention an indemnity clause?')
    ListingQuestion(phrases=('indemnity clause',), is_exact=True, file_type=None)
    >>> read_listing('How many pages does the report have?')
    """
    text = " ".join(question.split()).rstrip("?.! ")
    asked = _ASKED.fullmatch(text) or _ASKED_OF.fullmatch(text)
    if asked is None:
        return None
    quoted = tuple(_QUOTED.findall(asked["what"]))
    what = asked["what"].strip("'‘’ ")
    what = what[_BEFORE.match(what).end() :].strip("'‘’ ")  # type: ignore[union-attr]
    if _CONDITION.search(_QUOTED.sub("", asked["what"])):
        return None  # a condition that a list of words cannot express
    phrases = [phrase.replace('"', " ") for phrase in (quoted or (what,))][:_MOST_PHRASES]
    if not all(re.search(r"\w", phrase) for phrase in phrases):
        return None
    is_mail = _MAIL.search(text, 0, asked.start("what")) is not None
    file_type = "mail" if is_mail else None
    return ListingQuestion(tuple(phrases), asked["exact"] is not None, file_type)


def why_not_counted(question: str) -> str | None:
    """Return why a question for a list is searched and not counted; ``None`` if it is no such.

    >>> why_not_counted('How many notes mention sugar in 2026?') is None
    False
    """
    text = _QUOTED.sub("", " ".join(question.split()))
    if not _LOOSE.match(text):
        return None
    if not text.casefold().startswith("how many times") and not _CONDITION.search(text):
        return None
    return (
        "this was searched, not counted: only documents and passages with given words are counted, "
        'as in "how many notes mention WORD"; for dates and other conditions: catalog browse '
        "--containing WORD --after DATE --before DATE"
    )


def answer_listing(
    service: Searcher, params: AskParams, listing: ListingQuestion
) -> Generator[AnswerEvent, None, Answer | None]:
    """Yield the events of an answer and return it whole.

    Return ``None`` if nothing contains the words and the question may mean something else.
    """
    params = replace(params, file_type=params.file_type or listing.file_type)
    asked, page = listing.phrases, _count(service, params, listing.phrases)
    words = _telling_words(listing.phrases)
    if not page.total and len(words) > 1 and listing.is_exact:
        apart = _count(service, params, words)
        if apart.total:
            asked, page = words, apart
    if not page.total and not listing.is_exact:
        return None
    results = _search(service, params, asked, page)
    yield AnswerEvent("results", results=results)
    sources = Sources(results, service.parts.settings.answers.citations)
    first: dict[str, SearchResult] = {}
    for result in results:
        first.setdefault(result.source_doc_id, result)
    sentences = [AnswerSentence(text=_headline(asked, page), citations=(), supported=True)]
    for entry in page.entries:
        found = first.get(entry.source_doc_id)
        if found is None:  # a passage of more than a search may return
            line = AnswerSentence(text=entry.path, citations=(), supported=True, breaks="\n")
        else:
            line = sources.cite(_line(found, entry.matching or 1, asked))
        sentences.append(line)
    yield from (AnswerEvent("sentence", sentence=one) for one in sentences)
    rest = page.total - len(page.entries)
    arguments = " ".join(f'--containing "{phrase}"' for phrase in asked)
    kind = f" --type {params.file_type}" if isinstance(params.file_type, str) else ""
    more = f"{rest} more: catalog browse {arguments}{kind} --offset {len(page.entries)}"
    return Answer(
        params.question,
        tuple(sentences),
        sources.of(sentences),
        results,
        certainty="exact",
        agent=params.agent,
        notes=(*page.notes, *([more] if rest else [])) if page.total else (),
    )


def _count(service: Searcher, params: AskParams, phrases: tuple[str, ...]) -> CatalogPage:
    shared = {field.name for field in fields(BrowseParams)} & {
        field.name for field in fields(AskParams)
    }
    return DocumentCatalog(service.library).query(
        containing=phrases,
        limit=min(params.top_k or _LISTED, MAX_DOCUMENTS),
        **{name: getattr(params, name) for name in shared},
    )


def _search(
    service: Searcher, params: AskParams, phrases: tuple[str, ...], page: CatalogPage
) -> SearchResults:
    """Return passages of the page's documents that contain the phrases, the best ones first."""
    shared = {"dataset", "role", "filters", "after", "before", "file_type", "name"}
    search = SearchParams(
        " ".join(f'"{one}"' for one in phrases),
        docs=[f"{entry.dataset}:{entry.path}" for entry in page.entries] or None,
        top_k=min(1000, max(10, sum(entry.matching or 0 for entry in page.entries))),
        mode="lexical",
        rerank=False,
        expand=False,
        similarity_threshold=0.0,
        all_copies=True,
        **{name: getattr(params, name) for name in shared},
    )
    return service.run(search)


def _headline(phrases: tuple[str, ...], page: CatalogPage) -> str:
    quoted = [f'"{phrase}"' for phrase in phrases]
    words = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
    where = "" if len(quoted) == 1 else " in one passage"
    if not page.total:
        return f"No document contains {words}{where}."
    some = "1 document contains" if page.total == 1 else f"{page.total:,} documents contain"
    return f"{some} {words}{where}."


def _line(result: SearchResult, count: int, phrases: tuple[str, ...]) -> AnswerSentence:
    """Return the statements of a passage that contain the phrases; without one, the line."""
    found: dict[int, Statement] = {}
    statements = list(read_statements(result.text, result.sections))

    def order(pair: tuple[_Rank, Statement]) -> tuple[int, bool, _Rank]:
        rank, one = pair  # among statements with as many words, a mail's subject comes last
        return rank[0], one.text.partition(": ")[2] != result.title, rank

    for phrase in phrases:
        words = query_words(phrase, language_of_words(result.text))
        ranked = [(words.rank(words.matches(one.text)), one) for one in statements]
        best = max(ranked, key=order, default=None)
        if best is not None and any(best[0]):
            found.setdefault(best[1].start, best[1])
    spans = [(one.start, one.end) for one in found.values()]
    start, end = spans[0] if spans else find_quote(result, " ".join(phrases))
    texts = [one.text for one in found.values()] or [result.text[start:end].lstrip("#>-*+ ")]
    times = "" if count == 1 else f" ({count:,} passages)"
    above = [part for one in found.values() for part in one.context if turns_meaning(part)]
    return AnswerSentence(
        text=neutralise(" … ".join(" ".join(text.split()) for text in texts), [result]),
        context=" › ".join(dict.fromkeys([f"{result.title}{times}", *above])),
        citations=(result.rank,),
        supported=True,
        breaks="\n",
        span=(start, end),
    )


def _telling_words(phrases: tuple[str, ...]) -> tuple[str, ...]:
    common = stop_words("english")
    words = [word for phrase in phrases for word in re.findall(r"\w+", phrase)]
    telling = dict.fromkeys(word for word in words if word.casefold() not in common)
    return tuple(telling)[:_MOST_PHRASES]
