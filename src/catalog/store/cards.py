"""Document cards: short descriptions that a search for documents reads.

A card holds a document's title, names, headings, summary and metadata, with full text over them. It
is made in the transaction that publishes the document. Cards are searched by BM25 over weighted
columns, documents also by their names.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, select

from catalog.store.document_names import Member
from catalog.store.lexical.analysis import UNSPACED, fold, raw_words, without_accents, word_forms
from catalog.store.lexical.languages import stop_words
from catalog.store.phrases import MAX_TERMS, fts_words, match_any, match_cards, quote
from catalog.store.schema import documents

_MAX_CHARS = 4000  # of headings and of metadata
# Fields that do not describe a document's content, or that have a column of their own.
_NOT_ABOUT = (
    "dataset", "source_doc_id", "docid", "path", "title", "page_title", "file_type",
    "source_type", "agent_hint", "media",
    "created", "modified", "confidentiality", "language", "identifier", "kernel",
)  # fmt: skip
MOST_NAME_WORDS = 12  # a longer query is not a name
_MOST_NAME_CHARS = 300
_MOST_PARTS = 12  # of a compound
_SHOWN = (documents.c.file_type, documents.c.path, documents.c.dataset)
_EXTENSION = re.compile(r"[A-Za-z0-9]{1,10}")


def make_card(
    document: Mapping[str, Any],
    headings: Iterable[str],
    summary: str,
    fields: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the full text of a document's card, from its row and those of its fields."""
    texts = [(one["field"], one["text_value"]) for one in fields if one["kind"] == "s"]
    texts.sort(key=lambda one: one[0] != "tags")
    metadata = " ".join(value for field, value in texts if field not in _NOT_ABOUT)
    name = " ".join([document["path"], *(value for field, value in texts if field == "media")])
    name_words = {word.casefold() for word in fts_words(name)}
    raws = raw_words(without_accents(name))
    forms = (form for raw in raws for form, is_plain in word_forms(raw) if is_plain)
    humps = " ".join(form for form in dict.fromkeys(forms) if form not in name_words)
    return {
        "rowid": document["id"],
        "title": separate_characters(document["title"]),
        "name": separate_characters(f"{name} {humps}"),
        "headings": separate_characters(" ".join(headings)[:_MAX_CHARS]),
        "summary": separate_characters(summary),
        "metadata": separate_characters(metadata[:_MAX_CHARS]),
    }


def separate_characters(text: str) -> str:
    """Put spaces between the characters of scripts that write without spaces, such as Chinese.

    FTS5 would index a run of them as one word.
    """
    return text if text.isascii() else UNSPACED.sub(lambda run: f" {' '.join(run[0])} ", text)


def card_terms(query: str) -> list[str]:
    """Return the terms to look for in cards; stop words only if the text has no other words.

    A compound such as ``foo.bar`` adds its parts and their phrase; a very long one is cut to its
    first parts. In scripts without spaces, every pair of neighbouring characters is a term. Returns
    the first :data:`~catalog.store.phrases.MAX_TERMS` terms.
    """
    terms: dict[str, None] = {}
    for raw in raw_words(query):
        words = fts_words(raw)[:_MOST_PARTS]
        terms |= dict.fromkeys([" ".join(words), *words] if len(words) > 1 else words)
    common = stop_words("english")
    meaningful = [term for term in terms if fold(term) not in common] or terms
    forms = dict.fromkeys(form for term in meaningful for form in _forms(term))
    return list(islice(forms, MAX_TERMS))


def search_cards(
    connection: Connection, terms: Collection[str], allowed: ColumnElement[bool], limit: int
) -> list[str]:
    """Return the ids of the ``limit`` documents whose cards match best, ties in order of path.

    The score is BM25 over the weighted columns. ``allowed`` is a condition on ``documents``.
    """
    if len(terms) == 0:
        return []
    score, query = _matching(connection, match_any(terms), allowed, documents.c.source_doc_id)
    ordered = query.order_by(score.desc(), documents.c.path, documents.c.dataset)
    return [row.source_doc_id for row in connection.execute(ordered.limit(limit))]


def find_documents(
    connection: Connection,
    query: str,
    allowed: ColumnElement[bool],
    groups: Mapping[int, Sequence[Member]] | None = None,
) -> tuple[dict[int, float], dict[str, int]]:
    """Return scores of documents by row number, best first, and numbers of them by file type.

    Cards and names are searched; a query that is a document's name ranks it first.

    A score is the BM25 score of the card divided by the best card's, so 0 to 1. A document whose
    title or name contains the query's words as a phrase gets 1 more; if the query is the whole
    title, path or file name, with or without the extension, it gets 2 more. For ``plan.md`` the
    word ``md`` is not searched if a document here ends in ``.md``. Each of ``groups`` (see
    ``find_groups``) is found as its first file, with the best score of all. Ties are in order of
    path.
    """
    rows: Sequence[Any] = ()
    if terms := _terms(connection, query, allowed):
        relevance, matching = _matching(connection, match_any(terms), allowed, *_SHOWN)
        rows = connection.execute(matching.add_columns(relevance)).all()
    best = max((row[-1] for row in rows), default=1.0)
    found = ((*row[:-1], row[-1] / best) for row in rows)
    scores, known = dict[int, float](), dict[int, tuple[str, ...]]()
    for id_, *about, more in (*found, *_named_by(connection, query, allowed)):
        known[id_] = tuple(about)
        scores[id_] = scores.get(id_, 0.0) + more
    firsts = {one.id: group[0] for group in (groups or {}).values() for one in group}
    joined = dict[int, float]()
    for id_, score in scores.items():
        first = firsts.get(id_)
        shown = id_ if first is None else first.id
        joined[shown] = max(score, joined.get(shown, score))
        if first is not None:
            known.setdefault(shown, (known[id_][0], first.path, first.dataset))
    counts = Counter(known[id_][0] for id_ in joined)
    in_order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ranked = sorted(joined, key=lambda id_: (-joined[id_], known[id_][1:]))
    return {id_: joined[id_] for id_ in ranked}, dict(in_order)


def _terms(connection: Connection, query: str, allowed: ColumnElement[bool]) -> list[str]:
    terms = card_terms(query)
    bare, dot, extension = query.strip().rpartition(".")
    if not (dot and card_terms(bare) and _EXTENSION.fullmatch(extension)):
        return terms
    is_such = documents.c.path.ilike(f"%.{extension}")
    if connection.scalar(select(documents.c.id).where(is_such, allowed).limit(1)) is None:
        return terms
    return [term for term in terms if term.casefold() != extension.casefold()] or terms


def _named_by(
    connection: Connection, query: str, allowed: ColumnElement[bool]
) -> Iterator[tuple[Any, ...]]:
    words = [word.casefold() for word in fts_words(query)[: MOST_NAME_WORDS + 1]]
    # FTS5 takes long for long phrases
    if not 0 < len(words) <= MOST_NAME_WORDS or sum(map(len, words)) > _MOST_NAME_CHARS:
        return
    phrase = quote(separate_characters(" ".join(words)).strip())
    columns = (*_SHOWN, documents.c.title)
    _, matching = _matching(connection, phrase, allowed, *columns, is_name=True)
    for id_, file_type, path, dataset, title in connection.execute(matching):
        yield id_, file_type, path, dataset, 2.0 if _is_called(words, title, path) else 1.0


def _matching(
    connection: Connection,
    match: str,
    allowed: ColumnElement[bool],
    *columns: ColumnElement[Any],
    is_name: bool = False,
) -> tuple[ColumnElement[float], Select[Any]]:
    """Return the score as an expression, and a query for id and columns of what matches."""
    matched = match_cards(connection, match, is_name=is_name)
    query = select(documents.c.id, *columns).select_from(matched)
    return matched.c.score, query.join(documents, documents.c.id == matched.c.id).where(allowed)


def _forms(term: str) -> Iterable[str]:
    run = None if term.isascii() else UNSPACED.search(term)
    if run is None or len(run[0]) < 2:
        return (separate_characters(term).strip(),)
    characters = "".join(UNSPACED.findall(term))
    return (f"{first} {second}" for first, second in pairwise(characters))


def _is_called(query_words: Sequence[str], title: str, path: str) -> bool:
    name = path.rpartition("/")[2]
    stem = name.rpartition(".")[0]
    whole = path.removesuffix(name) + stem
    longest_name = sum(map(len, query_words)) + 2 * len(query_words) + 4
    names = (text for text in (title, path, whole, name, stem) if len(text) <= longest_name)
    return any([word.casefold() for word in fts_words(text)] == list(query_words) for text in names)
