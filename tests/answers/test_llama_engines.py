"""The same answers as LlamaIndex engines give them."""

import asyncio

import pytest

from answers.conftest import WritingLLM
from catalog.core.errors import InputError
from catalog.search_v2 import AnswerQueryEngine

CANCEL = "How many days may customers cancel within?"
RIGHT = "Customers may cancel within 14 days of the order [1]."


def test_a_query_engine_gives_the_answer_and_its_sources(service):
    response = AnswerQueryEngine("notes", service=service).query(CANCEL)
    assert response.response.startswith("Customers may cancel within 14 days of the order. [1]")
    assert response.source_nodes[0].node.metadata["path"] == "cancel.md"
    assert response.metadata["citations"][0]["verified"]
    later = asyncio.run(AnswerQueryEngine("notes", service=service).aquery(CANCEL))
    assert later.response == response.response


def test_a_query_engine_sees_what_its_role_sees(service):
    engine = AnswerQueryEngine(service=service, role="guest")
    assert engine.query("What is the salary of a director?").metadata["abstained"]
    with pytest.raises(InputError, match="rolle"):
        AnswerQueryEngine(service=service, rolle="guest")


def test_a_query_engine_streams_checked_sentences(service):
    llm = WritingLLM(replies=[f"{RIGHT} A refund takes 50 working days [1]."], prompts=[])
    response = AnswerQueryEngine(service=service, llm=llm, streaming=True).query(CANCEL)
    assert response.source_nodes
    parts = list(response.response_gen)
    assert len(parts) == 2
    assert parts[1].endswith("[unsupported]")
    assert response.metadata["answer"] == "".join(parts)
