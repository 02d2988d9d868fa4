"""The reranker chooses the sentence at which a recording is played."""

import pytest

from catalog.core.errors import RerankError
from catalog.library.indexing import Indexer
from catalog.retrieval.search_parts import SearchParts
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library
from scripted import ScriptedReranker

SUBTITLES = """00:00:10.000 --> 00:00:14.000
ANNA: The batch is large, the batch is normal.

00:00:14.000 --> 00:00:20.000
BOB: We rescale every layer. The batch stays.

00:00:20.000 --> 00:00:30.000
ANNA: Then it learns.
"""
ANSWER = "BOB: We rescale every layer."


class SentenceReader(ScriptedReranker):
    """Prefers the one sentence that answers, and any whole passage to sentences."""

    chooses_sentences = True

    def __init__(self, **options):
        super().__init__(0.0, **options)
        self.fails_on_sentences = False

    def scores(self, query, passages):
        super().scores(query, passages)
        if self.fails_on_sentences and all("\n" not in passage for passage in passages):
            raise RerankError("out of breath")
        return [2.0 if passage == ANSWER else -float(len(passage)) for passage in passages]


@pytest.fixture
def asked(tmp_path):
    talks = tmp_path / "talks"
    talks.mkdir()
    (talks / "lecture.vtt").write_text(f"WEBVTT\n\n{SUBTITLES}")
    libraries = []

    def ask(reranker, *, rerank=True, **settings):
        library = open_library(tmp_path / "home", rerank_blend="replace", **settings)
        libraries.append(library)
        Indexer(library).build(talks, "talks")
        service = SearchServiceV2(library, SearchParts(library, make_reranker=lambda: reranker))
        return service.search("batch normal", dataset="talks", rerank=rerank, mode="lexical")

    yield ask
    for library in libraries:
        library.close()


def stage(answer, name):
    return next((one for one in answer.stages if one.name == name), None)


def test_a_reranked_passage_is_played_at_the_sentence_that_the_reranker_prefers(asked):
    (by_words,) = asked(SentenceReader(), rerank=False)
    assert (by_words.moment, by_words.link) == (10.0, "lecture.vtt#t=10")
    answer = asked(SentenceReader())
    (hit,) = answer
    assert (hit.moment, hit.link) == (14.0, "lecture.vtt#t=14")
    assert hit.citation == "[source: lecture, t=0:14]"
    assert hit.evidence.best_sentence.text == "We rescale every layer."
    assert "We rescale" in hit.snippet
    assert stage(answer, "sentences").note == "4 sentences of 1 passage"


def test_scores_of_sentences_are_cached(asked):
    asked(SentenceReader())
    reader = SentenceReader()
    (hit,) = asked(reader)
    assert hit.moment == 14.0
    assert reader.asked == []


def test_a_reranker_that_fails_on_sentences_leaves_those_with_most_words(asked):
    reader = SentenceReader()
    reader.fails_on_sentences = True
    answer = asked(reader)
    assert answer[0].moment == 10.0
    assert stage(answer, "sentences").status == "failed"
    assert stage(answer, "rerank").status == "ran"


def test_a_reranker_that_reads_passages_only_is_not_asked_for_sentences(asked):
    reranker = ScriptedReranker(1.0)
    answer = asked(reranker)
    assert answer[0].moment == 10.0
    assert len(reranker.asked) == 1
    assert stage(answer, "sentences") is None
