"""Text of a report: numbers for people, excerpts with marks, and only showable characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

View = dict[str, Any]
"""What a template shows, by the names it uses."""

NOT_KNOWN = "not known"
NO_BREAK = "\u00a0"  # keeps a number and its unit on one line
EXCERPT_CHARS = 400
_SCANNED_CHARS = 20_000
_MAX_WORDS = 40
_PREFIX_CHARS = 4  # from this length on a query's word also marks longer words that begin with it

# Control characters, lone surrogates, noncharacters, and marks of text direction.
_UNSHOWABLE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e"
    r"\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_DIRECTION_MARKS = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|])")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_WORDS_OF_GRAMMAR = """
a an and any are as at be been but by can could did do does for from get had has have how i if in
into is it its me my no not of on or shall should so some than that the their them then there these
they this to was we were what when where which who why will with would you your
"""
_FUNCTION_WORDS = frozenset(_WORDS_OF_GRAMMAR.split())


def make_showable(text: str) -> str:
    """Replace every character that is invisible, reverses the text or breaks UTF-8.

    Control characters become their pictures (␀), direction marks their code in brackets, and lone
    surrogates and noncharacters the replacement character.
    """
    return _UNSHOWABLE.sub(lambda match: _picture(match.group()), text)


def _picture(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if char in _DIRECTION_MARKS:
        return f"⟨U+{code:04X}⟩"
    return {0x7F: "␡", 0x2028: " ", 0x2029: " "}.get(code, "�")


@cache
def template_environment(package: str) -> Environment:
    """Return the templates of a package; text from outside is escaped and made showable."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "chance": format_chance,
        "difference": format_difference,
        "filters": format_filters,
        "ms": format_ms,
        "number": format_count,
        "p": format_p,
        "score": format_score,
        "share": format_share,
        "shorten": shorten,
    }
    return environment


def render_template(name: str, page: object) -> str:
    """Render a template of this package; text from outside is escaped and made showable."""
    environment = template_environment("catalog.evaluation")
    if name.endswith(".md.j2"):
        environment = environment.overlay(autoescape=False, finalize=_as_plain_markdown)
    return environment.get_template(name).render(page=page)


def _as_plain_markdown(value: object) -> object:
    """Make text from outside show literally, on one line; leave our own Markdown unchanged."""
    if hasattr(value, "__html__") or not isinstance(value, str):
        return value
    return _MARKDOWN.sub(r"\\\1", " ".join(make_showable(value).split()))


def _finalize(value: object) -> object:
    """Make text from outside safe to show; leave markup of templates unchanged."""
    if hasattr(value, "__html__") or not isinstance(value, str):
        return value
    return make_showable(value)


def shorten(text: str, limit: int = EXCERPT_CHARS) -> str:
    """Cut a text to at most ``limit`` characters, with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def make_anchor(query_id: str, number: int) -> str:
    """Return an HTML id for a query: its id if that is plain, else its number in the set."""
    return f"q-{query_id}" if _PLAIN_ID.fullmatch(query_id) else f"q-{number}~"


def format_score(value: float) -> str:
    """Format a score or mean to three digits, ``0.782``."""
    return f"{value:.3f}"


def format_difference(value: float) -> str:
    """Format a difference with a sign, a true minus, and no sign if it rounds to zero."""
    return "0.000" if abs(value) < 5e-4 else f"{value:+.3f}".replace("-", "−")


def format_p(p: float) -> str:
    """Format a p-value as ``< .001`` or three digits, ``.018``; 1 is ``1.000``."""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def format_chance(p: float) -> str:
    """Format a p-value as a share of cases, in words."""
    if p < 0.001:
        return f"less than 0.1{NO_BREAK}% of cases"
    return f"about {p * 100:.1f}{NO_BREAK}% of cases"


def format_share(value: float | None) -> str:
    """Format a share, 0 to 1, in percent; only exact ones are shown as 0 % or 100 %."""
    if value is None:
        return NOT_KNOWN
    if 0 < value < 0.01 or 0.99 < value < 1:
        return f"{min(max(value * 100, 0.1), 99.9):.1f} %"
    return f"{value * 100:.0f} %"


def format_count(value: int | None) -> str:
    """Format a whole number, or say that it is unknown."""
    return NOT_KNOWN if value is None else f"{value:,}"


def format_ms(ms: float | None) -> str:
    """Format milliseconds in a readable unit: ``0.05 ms``, ``1.2 s``."""
    if ms is None:
        return NOT_KNOWN
    if ms >= 1000:
        return f"{ms / 1000:.3g} s" if ms < 999_500 else f"{ms / 1000:,.0f} s"
    if ms >= 10:
        return f"{ms:.0f} ms" if ms < 999.5 else "1 s"
    if 0 < ms < 0.005:
        return "< 0.01 ms"
    return f"{ms:.1f} ms" if ms >= 1 else f"{ms:.2f} ms" if ms else "0 ms"


def format_value(value: object, limit: int = 200) -> str:
    """Format any value as a short text; ``None`` and "" as a dash."""
    return "–" if value is None or value == "" else shorten(str(value), limit)


def format_filters(filters: Any) -> str:
    """Format a query's filters as they were written, joined by 'and'; "" without any."""
    if not filters:
        return ""
    if isinstance(filters, list | tuple):
        return shorten(" and ".join(map(str, filters)))
    return shorten(str(filters))


def compile_words(query: str) -> re.Pattern[str] | None:
    """Compile a pattern of the query's words; function words only if there are no other words."""
    words = dict.fromkeys(word.casefold() for word in re.findall(r"\w+", make_showable(query)))
    chosen = [word for word in words if word not in _FUNCTION_WORDS] or list(words)
    if not chosen:
        return None
    options = "|".join(
        re.escape(word) + (r"\w*" if len(word) >= _PREFIX_CHARS else "")
        for word in chosen[:_MAX_WORDS]
    )
    return re.compile(rf"(?<!\w)(?:{options})(?!\w)", re.IGNORECASE)


def cut_excerpt(
    text: str, words: re.Pattern[str] | None, limit: int = EXCERPT_CHARS
) -> tuple[tuple[str, bool], ...]:
    """Cut out the part of a passage with most of the query's words; blanks become one space.

    Returns its pieces, each with whether it is one of the words. The excerpt has at most ``limit``
    characters and an ellipsis at each cut. Only the beginning of very long passages is read. An
    empty text gives no pieces.
    """
    flat = make_showable(" ".join(text[:_SCANNED_CHARS].split()))
    matches = list(words.finditer(flat)) if words is not None else []
    start = _best_start(matches, flat, limit)
    pieces = _mark_words(flat[start : start + limit], words)
    if start and pieces:
        pieces = [("… ", False), *pieces]
    if start + limit < len(flat) or len(text) > _SCANNED_CHARS:
        pieces.append((" …", False))
    return tuple(pieces)


def _best_start(matches: Sequence[re.Match[str]], flat: str, limit: int) -> int:
    """Return where to cut: before the densest run of distinct words, the earliest of ties."""
    if len(flat) <= limit:
        return 0
    best, most = 0, 0
    for index, first in enumerate(matches):
        start = max(0, min(first.start() - limit // 6, len(flat) - limit))
        inside: set[str] = set()
        for match in matches[index:]:
            if match.end() > start + limit:
                break
            inside.add(match.group().casefold())
        if len(inside) > most:
            best, most = start, len(inside)
    blank = flat.find(" ", best, best + limit // 6) if best else -1
    return best if blank < 0 else blank + 1


def _mark_words(text: str, words: re.Pattern[str] | None) -> list[tuple[str, bool]]:
    pieces: list[tuple[str, bool]] = []
    end = 0
    for match in words.finditer(text) if words is not None else ():
        pieces += [(text[end : match.start()], False), (match.group(), True)]
        end = match.end()
    pieces.append((text[end:], False))
    return [piece for piece in pieces if piece[0]]
