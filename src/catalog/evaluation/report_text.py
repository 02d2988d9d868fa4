"""Text of a report: numbers for people, excerpts with marks, and only showable characters."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from catalog.retrieval.query_words import language_of_words, query_words

if TYPE_CHECKING:
    from jinja2 import Environment

View = dict[str, Any]
"""What a template shows, by the names it uses."""

NOT_KNOWN = "not known"
NO_BREAK = "\u00a0"  # keeps a number and its unit on one line
EXCERPT_CHARS = 400
_SCANNED_CHARS = 20_000

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


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: the first and the last column set left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others, last in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:-1], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells, last)).rstrip()


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


def cut_excerpt(text: str, query: str, limit: int = EXCERPT_CHARS) -> tuple[tuple[str, bool], ...]:
    """Cut out the part of a passage with most of the query's words; blanks become one space.

    Returns its pieces, each with whether it is one of the words. The excerpt has at most ``limit``
    characters and an ellipsis at each cut. Only the beginning of very long passages is read. An
    empty text gives no pieces.
    """
    flat = make_showable(" ".join(text[:_SCANNED_CHARS].split()))
    words = query_words(query, language_of_words(flat))
    matches, start, margin = words.matches(flat), 0, limit // 6
    if len(flat) > limit and matches:
        ends = [match.end for match in matches]
        runs = (
            matches[at : bisect_right(ends, match.start + limit - margin)]
            for at, match in enumerate(matches)
        )
        densest = max(filter(None, runs), key=words.rank, default=matches)
        start = max(0, min(densest[0].start - margin, len(flat) - limit))
        blank = flat.find(" ", start, start + margin) if start else -1
        start = blank + 1 or start
    pieces, at, end = [("… " if start else "", False)], start, start + limit
    for match in matches:
        if at <= match.start and match.end <= end:
            pieces += [(flat[at : match.start], False), (flat[match.start : match.end], True)]
            at = match.end
    is_cut = end < len(flat) or len(text) > _SCANNED_CHARS
    pieces += [(flat[at:end], False), (" …" if is_cut else "", False)]
    return tuple(piece for piece in pieces if piece[0])
