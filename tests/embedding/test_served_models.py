"""Models on servers: nothing lost or mixed up by any fault, and no secret told."""

import gzip
import logging
from dataclasses import replace
from unittest.mock import Mock

import httpx
import numpy as np
import pytest

from catalog.core.errors import ConfigError, EmbeddingError, EmbeddingServerError
from catalog.core.settings import EmbeddingSettings, load_settings
from catalog.core.tokens import EstimatedTokenCounter
from catalog.embedding import get_model
from catalog.embedding.encoder import EmbeddingUsage
from catalog.embedding.json_server import JsonServer
from catalog.embedding.model import EmbeddingModel
from catalog.embedding.served_model import TRIES, ServedEncoder
from catalog.search.embed_model import ResilientEmbedding
from embedding_server import (
    FEWER,
    KEY,
    NOT_A_NUMBER,
    NULL,
    REORDERED,
    TRUTHS,
    WORDS,
    WRONG_DIMENSION,
    ZERO,
    cut,
    running_server,
    slow,
    status,
)
from fakes import DIM, WordEncoder
from tables import table

PROVIDERS = pytest.mark.parametrize("provider", ["openai", "cohere"])
TEXTS = [f"walrus number {number}" for number in range(6)]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_server() as running:
        yield running


class Sleeps(list):
    """Remembers how long it was to sleep, and does not."""

    def __call__(self, seconds):
        self.append(seconds)


def model_of(server, provider="openai", **settings):
    encoder = ServedEncoder(server.settings(provider, **settings), sleep=(sleeps := Sleeps()))
    return EmbeddingModel(encoder, batch_size=32), sleeps


def assert_right(vectors, texts):
    for vector, expected in zip(vectors, WordEncoder().encode(texts), strict=True):
        assert vector == pytest.approx(expected, abs=1e-6)


@PROVIDERS
def test_each_text_gets_its_own_vector_at_length_one(server, provider):
    model, _ = model_of(server, provider)
    vectors = model.embed(TEXTS).vectors
    assert_right(vectors, TEXTS)
    assert [float(np.linalg.norm(vector)) for vector in vectors] == pytest.approx([1.0] * 6)
    assert all(vector.dtype == np.float32 for vector in vectors)


def test_openai_is_asked_in_its_form(server):
    model_of(server)[0].embed(["walrus"])
    ((path, body),) = server.requests
    assert path == "/v1/embeddings"
    assert body == {"model": "words", "input": ["walrus"], "encoding_format": "float"}


def test_cohere_is_told_which_side_a_text_is_of_and_to_cut_nothing(server):
    model = get_model(server.settings("cohere"))
    model.embed(["walrus"])
    model.embed_query("walrus?")
    model.embed_alone("a hypothetical walrus", is_passage=True)
    sides = [(body["texts"], body["input_type"], body["truncate"]) for _, body in server.requests]
    assert sides == [
        (["walrus"], "search_document", "NONE"),
        (["walrus?"], "search_query", "NONE"),
        (["a hypothetical walrus"], "search_document", "NONE"),
    ]
    assert {path for path, _ in server.requests} == {"/v2/embed"}


def test_a_batch_is_as_large_as_cohere_takes(server):
    model, _ = model_of(server, "cohere")
    texts = [f"walrus {number}" for number in range(100)]
    model = replace(model, batch_size=100)
    assert len(model.embed(texts).vectors) == 100
    assert [len(sent) for sent in server.texts()] == [96, 4]


def test_vectors_that_come_in_another_order_are_put_right_by_their_index(server):
    server.faults = [REORDERED]
    assert_right(model_of(server)[0].embed(TEXTS).vectors, TEXTS)
    assert len(server.requests) == 1


@PROVIDERS
@pytest.mark.parametrize(
    ("fault", "least"),
    [
        (status(429), 0.0),
        (status(429, Retry_After="9"), 9.0),
        (status(500), 0.0),
        (status(503, Retry_After="nonsense"), 0.0),
        (cut, 0.0),
        (lambda handler, _answer: handler.send(200, b"<html>"), 0.0),
    ],
    ids=["429", "429 seconds", "500", "503", "cut", "no JSON"],
)
def test_what_passes_is_waited_for_and_asked_again(server, provider, fault, least):
    server.faults = [fault]
    model, sleeps = model_of(server, provider)
    assert_right(model.embed(TEXTS).vectors, TEXTS)
    (slept,) = sleeps
    assert least <= slept <= least + 1.0
    assert server.embedded == TEXTS
    assert (model.usage.requests, model.usage.retries) == (2, 1)
    assert model.usage.waited_seconds == slept


def test_a_request_that_takes_too_long_is_asked_again(server):
    server.faults = [slow]
    model, sleeps = model_of(server, timeout_seconds=0.3)
    assert_right(model.embed(TEXTS).vectors, TEXTS)
    assert len(sleeps) == 1


def test_an_answer_that_is_compressed_is_not_unpacked(server):
    bomb = gzip.compress(b" " * 2_000_000)
    server.dead = lambda handler, _answer: handler.send(200, bomb, Content_Encoding="gzip")
    with pytest.raises(EmbeddingServerError, match="compressed"):
        model_of(server)[0].embed(TEXTS)


def test_an_answer_far_longer_than_the_vectors_of_its_texts_is_not_read_to_its_end(server):
    server.dead = lambda handler, _answer: handler.send(200, b" " * 3_000_000)
    with pytest.raises(EmbeddingServerError, match="over 2800000 bytes"):
        model_of(server)[0].embed(TEXTS)


def test_the_tries_grow_apart_by_chance_and_end(server):
    server.dead = status(500)
    model, sleeps = model_of(server)
    with pytest.raises(EmbeddingServerError, match="status 500"):
        model.embed(TEXTS)
    assert len(sleeps) == TRIES - 1
    for number, slept in enumerate(sleeps):
        assert 0.2 <= slept <= 2**number + 0.2
    # the batch, and one try with a harmless text: no halves of a batch that is not to blame
    assert [len(sent) for sent in server.texts()] == [6] * TRIES + [1]


@pytest.mark.parametrize("asked", ["3600", "Fri, 01 Jan 2100 00:00:00 GMT"])
def test_a_wait_longer_than_the_run_would_is_not_waited(server, asked):
    server.dead = status(429, Retry_After=asked)
    model, sleeps = model_of(server)
    with pytest.raises(EmbeddingServerError, match=r"asks to wait \d{4,} s"):
        model.embed(TEXTS)
    assert sleeps == []


def test_after_an_outage_each_request_has_one_try_until_one_succeeds(server):
    server.dead = status(500)
    model, sleeps = model_of(server)
    for _ in range(2):
        with pytest.raises(EmbeddingServerError):
            model.embed(TEXTS)
    assert len(server.requests) == TRIES + 1 + 2
    server.dead = None
    assert_right(model.embed(TEXTS).vectors, TEXTS)
    server.faults, before = [status(500)], len(sleeps)
    assert_right(model.embed(TEXTS).vectors, TEXTS)
    assert len(sleeps) == before + 1


@PROVIDERS
@pytest.mark.parametrize(
    "fault",
    [WRONG_DIMENSION, NOT_A_NUMBER, NULL, ZERO, TRUTHS, WORDS, FEWER],
    ids=["wrong dimension", "NaN", "null", "zero", "truths", "words", "fewer"],
)
def test_an_answer_without_sense_is_never_kept(server, provider, fault):
    server.faults = [fault]
    model, sleeps = model_of(server, provider)
    result = model.embed(TEXTS)
    assert_right(result.vectors, TEXTS)
    assert [len(sent) for sent in server.texts()] == [6, 3, 3]
    server.dead = fault
    with pytest.raises(EmbeddingError, match="does not answer"):
        model.embed(TEXTS[:2])
    assert sleeps == []


@PROVIDERS
@pytest.mark.parametrize("code", [400, 413, 422, 500])
def test_one_poisoned_text_costs_only_itself(server, provider, code):
    server.poison_status = code
    texts = [f"walrus {number:02}" for number in range(32)]
    texts[13] += " POISON"
    model, _ = model_of(server, provider)
    result = model.embed(texts)
    assert list(result.failures) == [13]
    assert_right([*result.vectors[:13], *result.vectors[14:]], [*texts[:13], *texts[14:]])
    assert sorted(set(server.embedded) - {"probe"}) == sorted(set(texts) - {texts[13]})
    assert len(server.embedded) - server.embedded.count("probe") == 31  # nothing twice
    if code < 500:
        assert len(server.requests) == 11  # 1 + two halves on each of the five levels


def test_a_text_that_is_too_long_says_so(server):
    server.faults = [
        lambda handler, _: handler.send(500, {"error": "input is too large to process"})
    ]
    model, sleeps = model_of(server)
    with pytest.raises(EmbeddingError, match="too long for the model"):
        model.encoder.encode(["walrus"])
    assert sleeps == []


@PROVIDERS
def test_a_wrong_key_stops_at_once_and_is_not_shown(server, provider, caplog):
    caplog.set_level(logging.DEBUG)
    server.key = "another"
    settings = server.settings(provider)
    model = get_model(settings)
    with pytest.raises(ConfigError, match="refused the key") as raised:
        model.embed(TEXTS)
    assert len(server.requests) == 1
    told = [
        raised.value, settings, model, model.encoder, ResilientEmbedding(model).to_dict(),
        caplog.text,
    ]  # fmt: skip
    assert "IDX_EMBEDDING__API_KEY" in str(raised.value)
    assert not [text for one in told for text in (str(one), repr(one)) if "SECRET" in text]


@pytest.mark.parametrize("fault", [status(500), status(400), status(429), cut])
def test_no_error_holds_the_key_the_texts_or_what_the_server_said(server, fault):
    server.dead = fault
    with pytest.raises(EmbeddingError) as raised:
        model_of(server)[0].embed(["CONFIDENTIAL"])
    error = raised.value
    while error is not None:
        assert not {word for word in ("SECRET", "SENSITIVE", "CONFIDENTIAL") if word in str(error)}
        error = error.__cause__


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("embedding", "api_key"), ("llm", "api_key"), ("collection", "api_key"),
        ("rag_v2", "qdrant_api_key"), ("rag_v2", "rerank_api_key"),
    ],
)  # fmt: skip
@table("odd")
def test_a_key_that_no_header_can_hold_is_refused_unseen(section, name, odd):
    with pytest.raises(ConfigError, match=rf"{section}\.{name}") as raised:
        load_settings(overrides={section: {name: f"{KEY}{odd}"}})
    assert "SECRET" not in str(raised.value)


@PROVIDERS
def test_a_model_that_the_server_does_not_have_stops_at_once(server, provider):
    model, _ = model_of(server, provider, model="unknown")
    with pytest.raises(ConfigError, match="IDX_EMBEDDING__MODEL"):
        model.embed(TEXTS)
    assert len(server.requests) == 1


def test_an_address_without_its_end_and_a_certificate_of_nobody_are_told_at_once(
    server, monkeypatch
):
    model, sleeps = model_of(server, url=server.settings("openai").url.removesuffix("/v1"))
    with pytest.raises(ConfigError, match=r"404 .*no such model.*often ends in /v1"):
        model.embed(TEXTS)
    said = "[SSL: CERTIFICATE_VERIFY_FAILED] unable to get local issuer certificate"
    monkeypatch.setattr(httpx.Client, "post", Mock(side_effect=httpx.ConnectError(said)))
    with pytest.raises(ConfigError, match=r"is not trusted: .*local issuer.*SSL_CERT_FILE"):
        model.embed(TEXTS)
    assert sleeps == []


@table("code, said")
def test_a_server_that_wants_money_is_not_asked_again(server, code, said):
    server.dead = lambda handler, _answer: handler.send(code, {"error": said})
    model, sleeps = model_of(server)
    with pytest.raises(ConfigError, match="payment first"):
        model.embed(TEXTS)
    assert (len(server.requests), sleeps) == (1, [])


def test_what_cannot_be_asked_without_a_setting_names_it():
    with pytest.raises(ConfigError, match="IDX_EMBEDDING__URL"):
        get_model(EmbeddingSettings(provider="openai"))
    with pytest.raises(ConfigError, match="IDX_EMBEDDING__API_KEY"):
        get_model(EmbeddingSettings(provider="cohere"))
    with pytest.raises(ConfigError, match="IDX_EMBEDDING__URL"):
        get_model(EmbeddingSettings(provider="openai", url="ftp://a"))


def test_an_address_may_have_the_whole_path_and_a_query(server):
    base = server.settings().url
    for url in (
        base, f"{base}/", f"{base}/embeddings", f"{base}?zone=1", f"{base}/embeddings?zone=1",
    ):  # fmt: skip
        server.requests.clear()
        get_model(server.settings(url=url)).embed(["walrus"])
        assert server.requests[0][0] == "/v1/embeddings" + ("?zone=1" if "zone" in url else "")


def test_a_limit_that_speaks_of_too_many_tokens_is_waited_for(server):
    server.faults = [lambda handler, _: handler.send(429, {"message": "too many tokens a minute"})]
    model, sleeps = model_of(server)
    assert_right(model.embed(TEXTS).vectors, TEXTS)
    assert len(sleeps) == 1


def test_a_text_that_is_no_unicode_is_sent_as_it_would_be_stored(server):
    assert model_of(server)[0].embed(["walrus \ud800"]).failures == {}
    assert server.texts() == [["walrus \ufffd"]]


def test_a_server_that_is_away_is_an_outage(server):
    gone = server.settings(url="http://127.0.0.1:9/v1")
    encoder = ServedEncoder(gone, sleep=Sleeps())
    with pytest.raises(EmbeddingServerError, match="cannot be reached"):
        encoder.encode(["walrus"])


def test_a_search_does_not_wait_as_long_as_a_build(server):
    server.dead = status(429, Retry_After="3")
    with pytest.raises(EmbeddingServerError, match="asks to wait 3 s"):
        get_model(server.settings()).embed_query("walrus")
    assert len(server.requests) == 1


def test_a_request_longer_than_the_patience_is_not_repeated(server):
    server.dead = slow
    encoder = ServedEncoder(server.settings(timeout_seconds=0.3, retry_seconds=0.2))
    with pytest.raises(EmbeddingServerError, match=r"did not answer in 0\.3 s"):
        encoder.encode(["walrus"])
    assert len(server.requests) <= 1


def test_nomic_has_its_prefixes_and_size_under_each_of_its_names(server):
    hub = "nomic-ai/nomic-embed-text-v1.5"
    models = [
        get_model(server.settings(model=name, dim=None))
        for name in (hub, f"hf:{hub}", "nomic-embed-text-v1.5", "nomic-embed-text")
    ]
    for model in models:
        assert (model.query_prefix, model.document_prefix) == (
            "search_query: ",
            "search_document: ",
        )
        assert (model.encoder.dim, model.encoder.max_tokens) == (768, 8192)
    assert len({model.encoder.fingerprint for model in models}) == 1
    assert server.requests == []


def test_cohere_has_its_size(server):
    encoder = get_model(server.settings("cohere", model="embed-english-v3.0", dim=None)).encoder
    assert (encoder.dim, encoder.max_tokens) == (1024, 512)


def test_a_published_model_is_the_same_on_each_server_and_another_is_not(server):
    def fingerprint(**settings):
        return ServedEncoder(server.settings(**settings)).fingerprint

    nomic = {"model": "nomic-embed-text"}
    assert fingerprint(**nomic) == fingerprint(**nomic, url="http://b/v1")
    assert fingerprint() != fingerprint(url="http://b/v1")
    assert fingerprint() == fingerprint(api_key="other")
    assert fingerprint() != fingerprint(max_tokens=99)
    url = "http://{}127.0.0.1/v1"
    user = fingerprint(url=url.format("u:p@"), api_key=None)
    assert user == fingerprint(url=url.format(""))


def test_the_server_is_asked_once_how_long_its_vectors_are(server):
    model, _ = model_of(server, dim=None)
    assert (model.encoder.dim, model.encoder.dim) == (DIM, DIM)
    assert server.texts() == [["probe"]]


def test_tokens_and_what_they_cost_are_counted(server):
    model, _ = model_of(server, price=0.5)
    model.embed(TEXTS)
    usage = model.usage
    assert (usage.requests, usage.tokens, usage.estimated) == (1, 12, 0)  # two each
    assert usage.cost == pytest.approx(12 * 0.5 / 1_000_000)
    assert str(usage) == "1 request, 12 tokens, under 0.01 to pay"
    dear, _ = model_of(server, price=100_000.0)
    dear.embed(TEXTS)
    assert str(dear.usage) == "1 request, 12 tokens, 1.20 to pay"


def test_tokens_that_a_server_does_not_count_are_estimated(server):
    server.faults = [lambda handler, answer: handler.send(200, {"data": answer["data"]})]
    model, _ = model_of(server)
    model.embed(["four word text here"])  # 19 letters and blanks: 4.75 tokens
    assert str(model.usage) == "1 request, about 5 tokens"


def test_a_long_text_is_cut_into_windows_that_the_model_is_sure_to_read(server):
    model, _ = model_of(server, max_tokens=64)
    windows = model.windows("12-34 x = {a: [1, 2]}; " * 40)
    assert len(windows) > 10
    assert max(len(EstimatedTokenCounter().spans(window)) for window in windows) <= 64 - 2


@table("text, spans")
def test_letters_are_four_a_token_and_all_else_one_each(text, spans):
    assert EstimatedTokenCounter().spans(text).tolist() == [list(span) for span in spans]


def test_cohere_is_set_in_a_toml_file_and_its_key_beside_it(tmp_path, monkeypatch):
    monkeypatch.setenv("IDX_EMBEDDING__API_KEY", KEY)
    (tmp_path / "catalog.toml").write_text(
        '[embedding]\nprovider = "cohere"\nmodel = "embed-english-v3.0"\nprice = 0.1\n'
    )
    model = get_model(load_settings(overrides={"home": tmp_path}).settings.embedding)
    assert (model.encoder.dim, model.query_prefix, model.document_prefix) == (1024, "", "")


def test_a_server_that_is_not_there_is_reported_with_the_setting_of_its_address():
    asked = JsonServer(
        "http://127.0.0.1:1/v1",
        name="it",
        setting="IDX_EMBEDDING__URL",
        error=EmbeddingError,
        api_key=None,
    )
    with pytest.raises(EmbeddingError, match="IDX_EMBEDDING__URL"):
        asked.post({}, 5.0)


def test_without_a_price_the_cost_is_unknown():
    assert (EmbeddingUsage(tokens=9) + EmbeddingUsage() - EmbeddingUsage()).cost is None
    both = EmbeddingUsage() + EmbeddingUsage(cost=2.0)
    assert (both.cost, (both - both).cost) == (2.0, 0.0)


def test_an_address_with_a_user_and_a_key_is_refused_for_one_would_not_be_sent():
    settings = EmbeddingSettings(
        provider="openai", model="m", url="http://me:SECRET@127.0.0.1:1/v1", api_key="KEY"
    )
    with pytest.raises(ConfigError, match="use only one") as told:
        get_model(settings)
    assert "SECRET" not in str(told.value)
