"""Spans of searches and questions: what begins and ends when, and nothing of what was asked."""

from __future__ import annotations

import sys

import pytest
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.span_handlers import SimpleSpanHandler

from catalog.answers.answering import answer_events, answer_question
from catalog.core.errors import MissingExtraError
from catalog.core.params import AskParams
from catalog.core.retrieval_events import asked_at
from catalog.library.indexing import Indexer
from catalog.retrieval import instrumentation
from catalog.retrieval import stages as spans
from catalog.search_v2 import SearchServiceV2
from fakes import open_library, write


@pytest.fixture
def service(tmp_path):
    write(tmp_path / "notes", cancel_dot_md="# Cancel\n\nCustomers may cancel within 14 days.\n")
    library = open_library(tmp_path / "home")
    Indexer(library).build(tmp_path / "notes", "notes")
    opened = SearchServiceV2(library)
    yield opened
    opened.close()


@pytest.fixture
def listening():
    """Adds handlers of spans to LlamaIndex's, and takes them away."""
    handlers = get_dispatcher().span_handlers
    before = list(handlers)
    yield handlers.append
    handlers[:] = before


def names(spans_):
    return [one.id_.partition("-")[0] for one in spans_]


def test_a_question_is_a_span_around_its_search_and_their_stages(service, listening):
    handler = SimpleSpanHandler()
    listening(handler)
    with asked_at("cli"):
        answer = answer_question(service, AskParams("May customers cancel?"))
    ran = [stage.name for stage in answer.stages if stage.status == "ran"]
    assert {"ask", "search", *ran} <= set(names(handler.completed_spans))
    by_name = {one.id_.partition("-")[0]: one for one in handler.completed_spans}
    assert by_name["search"].parent_id == by_name["extract"].parent_id == by_name["ask"].id_
    assert by_name["fuse"].parent_id == by_name["search"].id_
    assert by_name["ask"].tags == {"edge": "cli"}
    assert by_name["fuse"].tags["status"] == "ran"
    assert "cancel" not in str(handler.completed_spans)


def test_an_error_is_told_by_its_class(service, listening):
    dropped = []

    class Listening(SimpleSpanHandler):
        def prepare_to_drop_span(self, id_, *args, err=None, **more):
            dropped.append((id_.partition("-")[0], str(err)))
            return super().prepare_to_drop_span(id_, *args, err=err, **more)

    listening(Listening())
    with pytest.raises(Exception, match="nobody"):
        answer_question(service, AskParams("May customers cancel?", role="nobody"))
    assert dropped == [("search", "InputError"), ("ask", "InputError")]


def test_an_answer_that_is_not_read_to_its_end_still_ends_its_span(service, listening):
    handler = SimpleSpanHandler()
    listening(handler)
    events = answer_events(service, AskParams("May customers cancel?"))
    next(events)
    events.close()
    assert handler.open_spans == {}
    assert names(handler.dropped_spans) == ["ask"]


def test_spans_reach_opentelemetry_with_the_time_that_a_stage_took(service, listening):
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    listening(instrumentation.OtelSpanHandler(provider.get_tracer("test")))
    answer = answer_question(service, AskParams("May customers cancel?"))
    with pytest.raises(Exception, match="nobody"):
        answer_question(service, AskParams("May customers cancel?", role="nobody"))
    sent = {one.name: one for one in reversed(exporter.get_finished_spans())}
    assert sent["search"].parent.span_id == sent["ask"].context.span_id
    assert sent["fuse"].parent.span_id == sent["search"].context.span_id
    assert sent["search"].attributes["catalog.edge"] == "none"
    (fuse,) = (stage.ms for stage in answer.stages if stage.name == "fuse")
    assert (sent["fuse"].end_time - sent["fuse"].start_time) / 1e6 == pytest.approx(fuse, abs=5)
    failed = [one for one in exporter.get_finished_spans() if not one.status.is_ok]
    assert [one.status.description for one in failed if one.name == "ask"] == ["InputError"]
    assert "cancel" not in " ".join(one.to_json() for one in exporter.get_finished_spans())


def test_without_its_packages_the_setting_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(MissingExtraError, match=r"\[otel\]"):
        spans.export_spans()
