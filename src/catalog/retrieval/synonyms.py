"""A user's own synonyms, in ``synonyms.txt`` in the home: ``PTO = paid time off`` on a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from catalog.core.errors import ConfigError
from catalog.retrieval.parts import SearchParts
from catalog.store.lexical.languages import stop_words

SYNONYMS = "synonyms.txt"
_MOST, _LONGEST = 10, 8  # other wordings of a query; words of a phrase
_SIGNS = ".,;:?!()\"'"


def read_synonyms(home: Path, more: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return synonyms, also of ``more`` lines, by word or phrase in lower case.

    Raises :class:`ConfigError`, which names a wrong line.
    """
    file = home / SYNONYMS
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines() if file.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {SYNONYMS} in the home: {error}") from error
    found: dict[str, list[str]] = {}
    for number, line in enumerate([*lines, *more], start=1):
        forms = [" ".join(one.split()) for one in re.split("[,=]", line)]
        if line.strip() and not line.startswith("#"):
            if line.count("=") != 1 or "" in forms:
                wrong = f"{SYNONYMS} in the home, line {number} is wrong: {line[:80]!r}"
                raise ConfigError(f"{wrong}; write it as PTO = paid time off, or a, b = c")
            for form in forms:
                others = (one for one in forms if one != form)
                found.setdefault(form.casefold(), []).extend(others)
    return found


def reword(parts: SearchParts, text: str) -> list[str]:
    """Return the text with each word or phrase replaced by its synonyms, in turn; at most ten.

    A stop word, such as ``it``, is meant only in capitals.
    """
    synonyms, texts = read_synonyms(parts.settings.home, parts.synonyms), list[str]()
    words = text.split() if synonyms else []
    for at in range(len(words)):
        for end in range(at + 1, min(len(words), at + _LONGEST) + 1):
            said = " ".join(words[at:end])
            form = said.strip(_SIGNS)
            is_meant = form.isupper() or form.casefold() not in stop_words("english")
            for one in synonyms.get(form.casefold(), ()) if is_meant else ():
                texts.append(" ".join([*words[:at], said.replace(form, one), *words[end:]]))
    return [*dict.fromkeys(texts)][:_MOST]
