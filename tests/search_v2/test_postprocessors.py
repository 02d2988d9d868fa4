"""Selection stages: which nodes stay, and in what order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms.mock import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from pydantic import ValidationError

from catalog.retrieval.fusion import FusedHit, ListContribution, RankedList
from catalog.retrieval.snippets import Passage
from catalog.search_v2.nodes import ScoredPassage
from catalog.search_v2.postprocessors import (
    DistinctText,
    KeywordChunkSelector,
    MaxChunksPerDocument,
    TokenBudget,
)
from made_results import stored
from tables import table


def node(text, document="", score=None):
    metadata = {"source_doc_id": document} if document else {}
    return NodeWithScore(node=TextNode(text=text, metadata=metadata), score=score)


def kept(stage, nodes, query=None):
    """The texts that stay; whatever stays is the very object that was given."""
    out = stage.postprocess_nodes(nodes, query_str=query)
    assert {id(one) for one in out} <= {id(one) for one in nodes}
    return [one.node.get_content() for one in out]


def texts(stage, *given_texts, query=None):
    """The same for texts of one document."""
    return kept(stage, [node(text, "d") for text in given_texts], query)


def passage(text, *shares):
    """A passage of document ``d`` that stood at these (leg, origin, rank)."""
    chunk = stored(text, source_doc_id="d")
    stood = tuple(
        ListContribution(RankedList(leg, "engine", "q", origin, 1.0, ()), rank, 0.5, 0.5)
        for leg, origin, rank in shares
    )
    return ScoredPassage.of(Passage(chunk, 0.5, FusedHit(text, 0.5, stood, 0.0)))


def test_a_document_gives_no_more_passages_than_its_cap():
    nodes = [node(text, text[0]) for text in ("a1", "a2", "b1", "a3", "b2")]
    assert kept(MaxChunksPerDocument(limit=1), nodes) == ["a1", "b1"]
    assert kept(MaxChunksPerDocument(limit=2), nodes) == ["a1", "a2", "b1", "b2"]
    assert kept(MaxChunksPerDocument(limit=0), nodes) == ["a1", "a2", "b1", "a3", "b2"]


def test_a_node_of_another_retriever_belongs_to_its_source_or_to_itself():
    cut = [TextNode(text=text) for text in ("a1", "a2")]
    for one in cut:
        one.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="a")
    nodes = [*(NodeWithScore(node=one) for one in cut), node("alone"), node("lonely")]
    assert kept(MaxChunksPerDocument(limit=1), nodes) == ["a1", "alone", "lonely"]
    assert kept(KeywordChunkSelector(), nodes, "a2") == ["a1", "alone", "lonely"]


def test_the_passage_with_most_occurrences_of_the_words_stands_for_its_document():
    # "leaked" and "key": 1, 1 + 2, 2 occurrences
    choice = texts(
        KeywordChunkSelector(),
        "a key",
        "leaked: key after key",
        "leaked leaked",
        query="leaked key",
    )
    assert choice == ["leaked: key after key"]


def test_a_word_is_counted_whole_and_in_any_case():
    # art: none, one
    assert texts(KeywordChunkSelector(), "start party", "Its ART.", query="art") == ["Its ART."]
    # a word of the query said twice still counts once for each occurrence: 2 against 1
    found = texts(KeywordChunkSelector(), "salt", "oil oil", query="salt salt salt oil")
    assert found == ["oil oil"]


def test_words_of_two_characters_do_not_count():
    assert texts(KeywordChunkSelector(), "x", "to be or to be", "key", query="to be key") == ["key"]
    assert texts(KeywordChunkSelector(), "x", "to be or to be", query="to be") == ["x"]


def test_an_accent_is_the_same_however_it_is_written():
    found = texts(KeywordChunkSelector(), "cafes", "cafe\u0301", query="CAF\u00c9")
    assert found == ["cafe\u0301"]


def test_a_document_stands_where_its_first_passage_stood():
    nodes = [node("none", "a"), node("key", "b"), node("key key", "a"), node("key", "c")]
    assert kept(KeywordChunkSelector(), nodes, "key") == ["key key", "key", "key"]


@pytest.mark.parametrize("query", ["key", "absent", "to be"])
def test_passages_that_tie_are_distinguished_by_the_vector_leg_of_the_original_query(query):
    nodes = [
        passage("key 1", ("lexical", "original", 1), ("vector", "expansion", 1)),
        passage("key 2", ("lexical", "original", 2), ("vector", "original", 5)),
        passage("key 3", ("vector", "original", 4), ("vector", "expansion", 9)),
        passage("key 4"),
    ]
    assert kept(KeywordChunkSelector(), nodes, query) == ["key 3"]
    assert kept(KeywordChunkSelector(), nodes[:2], query) == ["key 2"]
    assert kept(KeywordChunkSelector(), nodes[::3], query) == ["key 1"]
    more = [passage("key", ("vector", "original", 1)), passage("key key")]
    assert kept(KeywordChunkSelector(), more, "key") == ["key key"]
    assert kept(KeywordChunkSelector(), nodes) == ["key 1"]  # without a query: the first


class WordCounter:
    name = "words"

    def spans(self, text):
        return np.zeros((len(text.split()), 2), dtype=np.int64)


def test_nodes_stay_while_they_fit_and_one_that_does_not_is_passed_over():
    # four characters a token: 2 + 3 (9 characters) + 1 + 1
    nodes = [node("a" * 8), node("b" * 9), node("c" * 4), node("d")]
    assert kept(TokenBudget(limit=4), nodes) == ["a" * 8, "c" * 4, "d"]
    assert kept(TokenBudget(limit=5), nodes) == ["a" * 8, "b" * 9]
    assert kept(TokenBudget(limit=7), nodes) == ["a" * 8, "b" * 9, "c" * 4, "d"]
    assert len(kept(TokenBudget(limit=0), nodes)) == 4


def test_a_budget_counts_with_the_counter_it_is_given_and_the_text_only():
    stage = TokenBudget(limit=3, counter=WordCounter())
    assert texts(stage, "one two", "three four", "five") == ["one two", "five"]


def test_a_budget_is_described_without_its_counter():
    described = TokenBudget(limit=3, counter=WordCounter()).to_dict()
    assert described == {"limit": 3, "class_name": "TokenBudget"}
    with pytest.raises(ValidationError, match="spans"):
        TokenBudget(limit=3, counter=len)  # it cannot count


def test_a_text_filed_twice_is_kept_once():
    found = texts(DistinctText(), "Rotate  the\nkey", "Rotate the key ", "rotate the key", "x")
    assert found == ["Rotate  the\nkey", "rotate the key", "x"]


@table("other")
def test_marks_and_layout_make_no_other_text(other):
    first = "Renewal\n\nThe fee is 500 euros: 5-10 % more, if 'Polaris' isn't told."
    assert texts(DistinctText(), first, other, "between") == [first, "between"]


@table("text, other")
def test_texts_that_differ_in_a_number_a_name_or_a_sign_with_a_meaning_are_both_kept(text, other):
    around = "This agreement is made between the two parties named below. {} It ends in May."
    for pair in ([text, other], [around.format(text), around.format(other)]):
        assert texts(DistinctText(), *pair) == pair


@pytest.mark.slow
@given(st.text("ab1 .*`#-'\"|\n", max_size=12), st.text("ab1 .*`#-'\"|\n", max_size=12))
def test_texts_with_other_letters_or_digits_are_never_one(text, other):
    def letters(one):
        return "".join(filter(str.isalnum, one))

    if letters(text) != letters(other):
        assert texts(DistinctText(), text, other) == [text, other]


class Stub(BaseRetriever):
    def __init__(self, nodes):
        self._nodes = nodes
        super().__init__()

    def _retrieve(self, query_bundle):
        return self._nodes


def test_all_stages_follow_one_another_in_a_plain_query_engine():
    nodes = [
        node("backup tapes", "a", 0.9),
        node("leaked key", "b", 0.8),
        node("the key, a leaked key", "a", 0.7),
        node("leaked  key", "c", 0.6),
        node("a key that is far too long a text", "e", 0.5),
        node("lost key", "f", 0.4),
        node("key", "g", 0.1),
    ]
    llm = MockLLM()
    engine = RetrieverQueryEngine.from_args(
        Stub(nodes),
        llm=llm,
        response_synthesizer=NoText(llm=llm),
        node_postprocessors=[
            SimilarityPostprocessor(similarity_cutoff=0.3),  # without g
            KeywordChunkSelector(),  # a by its second passage: 3 words against none
            DistinctText(),  # without c
            MaxChunksPerDocument(limit=1),
            TokenBudget(limit=11),  # 6 + 3, e needs 9, f 2
        ],
    )
    found = engine.query("leaked key").source_nodes
    assert [one.node.get_content() for one in found] == [
        "the key, a leaked key",
        "leaked key",
        "lost key",
    ]
    assert found[0] is nodes[2]


STAGES = [
    DistinctText(), KeywordChunkSelector(), MaxChunksPerDocument(limit=2), TokenBudget(limit=3),
]  # fmt: skip
any_nodes = st.lists(
    st.builds(
        node,
        st.sampled_from(["", "key", "key  key", "key key", "a longer text about a key"]),
        st.sampled_from(["", "a", "b"]),
        st.none() | st.floats(-1, 2),
    ),
    max_size=8,
)


def places(nodes, out):
    """Where the very objects of ``out`` stood in ``nodes``."""
    where = {id(one): at for at, one in enumerate(nodes)}
    return [where[id(one)] for one in out]


def documents(nodes):
    return [one.metadata.get("source_doc_id", one.node_id) for one in nodes]


@given(any_nodes, st.sampled_from(STAGES))
def test_a_stage_takes_away_and_changes_nothing(nodes, stage):
    before = [(id(one), one.to_json()) for one in nodes]
    stood = places(nodes, stage.postprocess_nodes(nodes, query_str="key"))
    assert [(id(one), one.to_json()) for one in nodes] == before
    if not isinstance(stage, KeywordChunkSelector):
        assert stood == sorted(set(stood))


@given(any_nodes)
def test_the_keyword_choice_keeps_every_document_once_and_their_order(nodes):
    out = KeywordChunkSelector().postprocess_nodes(nodes, query_str="key")
    assert len(set(places(nodes, out))) == len(out)
    assert documents(out) == list(dict.fromkeys(documents(nodes)))


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: type(stage).__name__)
def test_a_stage_has_its_own_name_and_nothing_in_is_nothing_out(stage):
    assert stage.class_name() == type(stage).__name__
    assert stage.postprocess_nodes([], query_str="key") == []


def test_a_text_is_kept_once_but_every_node_without_one_stays():
    nodes = [node(text) for text in ("", "a b", " ", "a\nb", "", "c")]
    assert kept(DistinctText(), nodes) == ["", "a b", " ", "", "c"]


def test_a_slide_that_stays_is_one_text_at_whichever_second():
    frames = [
        NodeWithScore(node=TextNode(text=text, metadata={"modality": modality}))
        for text, modality in (
            ("# Visual Frame at 00:30\n\nThe kernel.", "video_frame"),
            ("# Visual Frame at 01:00\n\nThe  kernel.", "video_frame"),
            ("# Visual Frame at 01:30\n\nThe image.", "video_frame"),
            ("# Chapter 1\n\nThe same.", "text"),
            ("# Chapter 2\n\nThe same.", "text"),
        )
    ]
    kept = DistinctText().postprocess_nodes(frames)
    assert kept == [frames[0], frames[2], frames[3], frames[4]]
