"""Answers that are none: why, what came nearest, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.core.answers import Abstained, NearDocument

if TYPE_CHECKING:
    from catalog.core.results import SearchResults

NO_PASSAGE = "no passage was found"
NOTHING_RELATED = (
    "I don't see content in this project that directly answers that question yet. "
    "Try ingesting more relevant documents ({examples}) and run this again."
)
NOT_ENOUGH = "I don't see enough information in this brain to answer that yet."
NONE_SUPPORTED = "nothing that the language model wrote stands in the passages it cites"
MODEL_ABSTAINS = "the language model finds no answer in the passages"
_EXAMPLES = "such as your pricing sheets, webinar transcripts, or SOPs"
_NEAREST = 3


def why_not_answered(results: SearchResults, least: float) -> str | None:
    """Return why what was found does not answer; ``None`` where it may.

    ``least`` is the confidence, 0 to 1, from which on to answer.
    """
    if len(results) == 0:
        return NO_PASSAGE
    if results.confidence >= least:
        return None
    return (
        f"the passages found answer with an estimated {results.confidence:.0%}, "
        f"and {least:.0%} is needed"
    )


def refuse(results: SearchResults, reason: str, *, had_passages: bool = False) -> Abstained:
    """Return the abstention; ``had_passages``: what was found might have answered, and did not."""
    nearest: dict[str, NearDocument] = {}
    for result in results:
        near = NearDocument(
            source_doc_id=result.source_doc_id,
            path=result.path,
            title=result.title,
            relevance=result.relevance,
        )
        nearest.setdefault(result.source_doc_id, near)
    where = " or ".join(results.datasets)
    return Abstained(
        message=NOT_ENOUGH if had_passages else NOTHING_RELATED.format(examples=_EXAMPLES),
        reason=reason,
        nearest=tuple(nearest.values())[:_NEAREST],
        ingest=f"add documents that say it: catalog index build FOLDER --dataset {where}",
    )
