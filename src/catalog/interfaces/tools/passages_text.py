"""Passages in words: numbered, cited, and set in so that none can forge another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from catalog.core.results import Explanation
from catalog.interfaces.tools.passages import AgentPassage, Place, is_timed
from catalog.search_v2.evidence import line_text, timecode

_INDENT = "    "


def passages_text(passages: Sequence[AgentPassage]) -> str:
    """The passages one below the other, a blank line between them."""
    return "\n\n".join("\n".join(_lines(passage)) for passage in passages)


def place_text(place: Place, *, is_timed: bool = False) -> str:
    """``lines 120–170, pages 3–4``, ``00:01:05–00:01:18``, or ``characters 120–480``."""
    parts = []
    if place.times is not None and (is_timed or (place.lines is None and place.page is None)):
        return _range(*map(timecode, place.times))
    if place.lines is not None:
        first, last = place.lines
        parts.append(f"{'line' if first == last else 'lines'} {_range(str(first), str(last))}")
    if place.page is not None:
        last = place.page if place.page_end is None else place.page_end
        pages = _range(str(place.page), str(last))
        parts.append(f"{'page' if last == place.page else 'pages'} {pages}")
    if not parts and place.characters is not None:
        parts.append(f"characters {_range(*map(str, place.characters))}")
    return ", ".join(parts)


def _lines(passage: AgentPassage) -> Iterator[str]:
    timed = is_timed(passage)
    name = _name(passage) if timed else passage.path
    about = passage.modality.replace("_", " ") if timed else " > ".join(passage.headings)
    head = f"[{passage.number}] {name}" + (f" — {about}" if about else "")
    where = place_text(passage.locator, is_timed=timed)
    if passage.evidence:
        yield head
        yield from (f"{_INDENT}{line_text(line)}" for line in passage.evidence)
    elif passage.evidence_of is not None:
        yield head
        yield f"{_INDENT}{where}: see [{passage.evidence_of}]"
    else:
        yield f"{head} ({where})"
        yield _INDENT + f'"{passage.text.strip()}"'.replace("\n", f"\n{_INDENT}")
    relevance = "" if passage.relevance is None else f", relevance {passage.relevance:.2f}"
    yield f"{_INDENT}reference: {passage.reference} (#{passage.docid}){relevance}"
    if passage.explain is not None:
        yield f"{_INDENT}{_explained(passage.explain)}"


def _name(passage: AgentPassage) -> str:
    """The recording's file, or the transcript's where no file of the recording is known."""
    return passage.media if passage.media and "." in passage.media else passage.path


def _explained(explain: Explanation) -> str:
    shares = [f"{one.leg} rank {one.rank} +{one.contribution:.4f}" for one in explain.contributions]
    if explain.bonus:
        shares.append(f"bonus +{explain.bonus:.4f}")
    if explain.rerank is not None:
        shares.append(f"reranked from {explain.rerank.rank}")
    return f"score {explain.score:.4f}: {', '.join(shares)}"


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first}–{last}"
