"""The sources of an answer: the passages behind its numbers."""

from collections.abc import Iterable, Sequence

from catalog.answers.statements import sentence_bounds
from catalog.core.answers import AnswerCitation, AnswerSentence
from catalog.core.results import SearchResult
from catalog.retrieval.query_words import language_of_words, query_words
from catalog.retrieval.shape import locate_part

_OF_RESULT = ("rank", "chunk_id", "dataset", "path", "title")
_LONGEST = 400  # characters of a passage that are quoted


class Sources:
    """Number the sources of an answer from 1, in the order of their citations.

    A source is a place of a passage: sentences on two pages have two sources, even if they are
    in one passage. ``form`` is one of ``IDX_ANSWERS__CITATIONS``.
    """

    def __init__(self, results: Iterable[SearchResult], form: str) -> None:
        self._results = {result.rank: result for result in results}
        self._form = form
        self._cited: dict[tuple[object, ...], AnswerCitation] = {}
        self._known: dict[AnswerSentence, AnswerSentence] = {}
        self._places: dict[tuple[object, ...], tuple[int, int]] = {}  # of their texts

    def cite(self, sentence: AnswerSentence) -> AnswerSentence:
        """Return the sentence with the numbers of its sources in place of the results' ranks."""
        cited = self._known.get(sentence)
        if cited is None:
            sources = [
                self._add(self._results[rank], sentence)
                for rank in dict.fromkeys(sentence.citations)
                if rank in self._results
            ]
            forms = {"source": [one.citation for one in sources]}
            forms["chunk"] = [f"[chunk: {one.chunk_id}]" for one in sources]
            marks = forms.get(self._form, [])
            update = {
                "citations": tuple(dict.fromkeys(source.n for source in sources)),
                "cited_as": tuple(dict.fromkeys(marks)),
            }
            cited = self._known[sentence] = sentence.model_copy(update=update)
        return cited

    def of(self, sentences: Sequence[AnswerSentence]) -> tuple[AnswerCitation, ...]:
        """Return the sources of these sentences, which :meth:`cite` gave, by number."""
        numbers = {number for one in sentences for number in one.citations}
        return tuple(one for one in self._cited.values() if one.n in numbers)

    def _add(self, result: SearchResult, sentence: AnswerSentence) -> AnswerCitation:
        start, end = sentence.span or find_quote(result, sentence.text)
        locator, cited, link = locate_part(result, start, end)
        end = end if sentence.span else min(end, start + _LONGEST)
        text = result.text[start:end]
        own = {name: getattr(result, name) for name in _OF_RESULT}
        key = (result.source_doc_id, cited, locator)
        known = self._cited.get(key)
        if known is None:
            known = AnswerCitation(
                n=len(self._cited) + 1,
                **own,
                locator=locator,
                citation=cited,
                link=link,
                text=text,
                verified=sentence.supported,
            )
        elif known.verified == sentence.supported and text not in known.text:
            low, high = self._places[key]
            if known.rank == result.rank:  # all that is quoted, and what is between
                start, end = min(start, low), max(end, high)
                text = result.text[start:end]
            else:
                start, end, text = low, high, f"{known.text} … {text}"
            known = known.model_copy(update={"text": text})
        elif sentence.supported and not known.verified:
            known = known.model_copy(update={**own, "verified": True, "text": text})
        else:
            return known
        self._places[key] = start, end
        self._cited[key] = known
        return known


def find_quote(result: SearchResult, words: str) -> tuple[int, int]:
    """Return the place of the passage's sentence with most of the words: ``[start, end)``."""
    text = result.text
    wanted = query_words(words, language_of_words(text))
    spans = list(sentence_bounds(text)) or [(0, 0)]
    return max(spans, key=lambda span: wanted.rank(wanted.matches(text[slice(*span)])))
