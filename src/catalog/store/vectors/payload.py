"""What a point carries besides its vector: just enough to be filtered and joined to SQL.

    chunk    the chunk id: every hit is joined to the truth by it
    doc_id   the source document id (LlamaIndex's own key for it)
    page     the numbers of the pages it stands on, where there are any
    kv       one token per value of every other field, and one per field that has a value

Any field name and any value thus filter by one keyword index: dots, quotes, booleans and
fields of mixed types need no care of their own. ``dataset`` is the collection, ``path`` and
``source_doc_id`` are ``doc_id``, so none of them needs a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from catalog.core.filters import kind_of, number
from catalog.core.ids import sha1_hex
from catalog.core.models import MetadataScalar

CHUNK = "chunk"
DOC = "doc_id"
PAGE = "page"
TOKENS = "kv"
UNTOKENED = frozenset({"dataset", "source_doc_id", "path", "page"})
_LONGEST = 256  # characters; longer values are known by their hash
_SEPARATOR = "\x1f"


def value_token(field: str, value: MetadataScalar) -> str:
    """The token of one value of a field; equal values, and only they, have equal tokens."""
    kind = kind_of(value)
    if isinstance(value, str):
        text = value if len(value) <= _LONGEST else sha1_hex(value)
        kind = "s" if len(value) <= _LONGEST else "h"
    else:
        text = str(value).lower() if isinstance(value, bool) else repr(number(value))
    return f"{_name(field)}{_SEPARATOR}{kind}:{text}"


def presence_token(field: str) -> str:
    """The token of a field that has a value at all."""
    return f"{_name(field)}{_SEPARATOR}*"


def tokens(fields: Mapping[str, Iterable[MetadataScalar]]) -> list[str]:
    """Every token of these fields, without repetition."""
    listed = [
        token
        for field, values in fields.items()
        if field not in UNTOKENED
        for value in values
        for token in (value_token(field, value), presence_token(field))
    ]
    return list(dict.fromkeys(listed))


def _name(field: str) -> str:
    """The field in a token: the separator never occurs in it except in front of a hash."""
    plain = _SEPARATOR not in field and len(field) <= _LONGEST
    return field if plain else _SEPARATOR + sha1_hex(field)
