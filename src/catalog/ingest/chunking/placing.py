"""Says where a passage stands: lines, page, seconds, and how large it is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from catalog.core.models import ChunkSpan, Cue, Locator, Modality, ParsedDocument, last_page
from catalog.ingest.chunking.lines import LineIndex
from catalog.ingest.chunking.measure import Measure


class Placer:
    """Makes the spans of one document."""

    def __init__(self, doc: ParsedDocument, measure: Measure) -> None:
        self._pages = doc.pages
        self._lines = LineIndex(doc.text)
        self._measure = measure

    def span(
        self,
        start: int,
        end: int,
        path: tuple[str, ...],
        modality: Modality = "text",
        cues: Sequence[Cue] = (),
    ) -> ChunkSpan:
        """The passage ``[start, end)``; ``cues`` have their offsets in the document.

        Its time runs from the start of the first cue to the latest end of any.
        """
        lines = self._lines.locator(start, end)
        before = bisect_right(self._pages, start)
        page = before or None
        following = self._pages[before : bisect_left(self._pages, end)]
        return ChunkSpan(
            start,
            end,
            path,
            modality,
            Locator(
                page=page,
                page_end=last_page(page, following),
                line_start=lines.line_start,
                line_end=lines.line_end,
                time_start=cues[0].time_start if cues else None,
                time_end=max(cue.time_end for cue in cues) if cues else None,
            ),
            tokens=self._measure.size(start, end),
            cues=tuple(
                Cue(cue.start - start, cue.end - start, cue.time_start, cue.time_end, cue.speaker)
                for cue in cues
            ),
            page_breaks=tuple(offset - start for offset in following),
        )
