"""The shared service of a process, and the events of LlamaIndex's instrumentation."""

import asyncio

import pytest
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers.base import BaseEventHandler

from catalog import search_v2
from catalog.core.settings import get_settings
from catalog.retrieval import shared
from catalog.search_v2 import SearchServiceV2
from small_documents import NOTES
from stores import open_store


@pytest.fixture
def service(tmp_path):
    """The shared service of this process, over three notes and a model without files."""
    made = SearchServiceV2(open_store(NOTES, tmp_path))
    shared._services.get(get_settings().model_dump_json(), lambda: made)
    yield made
    search_v2.close()


@pytest.fixture
def events():
    class Noting(BaseEventHandler):
        seen: list = []

        def handle(self, event, **_):
            self.seen.append(event)

    handler, root = Noting(), get_dispatcher()
    root.add_event_handler(handler)
    yield handler.seen
    root.event_handlers.remove(handler)


@pytest.fixture
def loop():
    """LlamaIndex's extractors leave the loop open that they make when there is none."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield
    made.close()
    asyncio.set_event_loop(None)
