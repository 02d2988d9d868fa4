"""Reports of embeddings for LlamaIndex's callbacks and instrumentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llama_index.core import Settings as LlamaSettings
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation.events.embedding import EmbeddingEndEvent, EmbeddingStartEvent
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import Dispatcher
from llama_index_instrumentation.event_handlers import NullEventHandler

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]

_dispatcher = get_dispatcher(__name__)


@contextmanager
def report_embedding(
    about: dict[str, Any], texts: Sequence[str], vectors: list[Vector | None]
) -> Iterator[None]:
    """Report an embedding to LlamaIndex's callbacks and instrumentation, like its own."""
    manager = LlamaSettings.callback_manager
    if not (manager.handlers or _is_heard(_dispatcher)):
        yield
        return
    _dispatcher.event(EmbeddingStartEvent(model_dict=about))
    with manager.event(CBEventType.EMBEDDING, {EventPayload.SERIALIZED: about}) as event:
        yield
        pairs = zip(texts, vectors, strict=True)
        done = [(text, vector.tolist()) for text, vector in pairs if vector is not None]
        chunks, embeddings = [text for text, _ in done], [vector for _, vector in done]
        event.on_end({EventPayload.CHUNKS: chunks, EventPayload.EMBEDDINGS: embeddings})
    _dispatcher.event(EmbeddingEndEvent(chunks=chunks, embeddings=embeddings))


def _is_heard(dispatcher: Dispatcher | None) -> bool:
    """Return whether any handler takes the events, because describing one is slow for a query."""
    while dispatcher is not None:
        if any(not isinstance(one, NullEventHandler) for one in dispatcher.event_handlers):
            return True
        dispatcher = dispatcher.parent if dispatcher.propagate else None
    return False
