"""What answers verbs: this process, with everything it keeps open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from catalog.core.errors import InputError
from catalog.core.param_fields import read_params

if TYPE_CHECKING:
    from types import TracebackType

    from catalog.core.answers import AnswerEvent
    from catalog.library.library import Library
    from catalog.search_v2.service import SearchServiceV2


_LOADING = Lock()
"""LlamaIndex's modules import one another: loaded by two threads at once they fail."""


class Engine(Protocol):
    """Answer verbs, here or in another process. Thread-safe."""

    def ask(self, verb: str, arguments: Mapping[str, Any], /) -> dict[str, Any]:
        """Return the answer's JSON object; raise what the verb raises, wherever it ran."""
        ...

    def close(self) -> None:
        """Release what it holds; safe to call twice."""
        ...


class AnsweringEngine(Engine, Protocol):
    """An engine that also tells an answer by its events."""

    def answer_events(self, arguments: Mapping[str, Any]) -> Iterator[AnswerEvent]:
        """Yield results, sentences and the whole answer."""
        ...


class LocalEngine:
    """Answer in this process from one library, which it closes."""

    def __init__(self, library: Library) -> None:
        self.library = library

    @cached_property
    def service(self) -> SearchServiceV2:
        """Return the search; LlamaIndex loads with it, and no other verb needs that."""
        with _LOADING:
            from catalog.search_v2.service import SearchServiceV2

        return SearchServiceV2(self.library)

    def answer(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        """Return what the verb's function gives, see ``calls.VERBS``.

        Raises :class:`InputError` for a verb that does not exist and for wrong arguments.
        """
        from catalog.interfaces.calls import VERBS

        if verb not in VERBS:
            raise InputError(f"there is no verb {verb!r}; verbs: {', '.join(VERBS)}")
        params = read_params(VERBS[verb].params, arguments, verb)
        return VERBS[verb].run(self, params)

    def ask(self, verb: str, arguments: Mapping[str, Any], /) -> dict[str, Any]:
        """Return the answer's JSON object; raise as :meth:`answer`."""
        from catalog.interfaces.calls import to_json

        return to_json(self.answer(verb, arguments))

    def answer_events(self, arguments: Mapping[str, Any]) -> Iterator[AnswerEvent]:
        """Yield what an answer is told by: results, sentences, the whole; raises as the verb does.

        Arguments are checked at once, before the first event.
        """
        from catalog.answers.answering import answer_events
        from catalog.core.params import AskParams

        return answer_events(self.service, read_params(AskParams, arguments, "ask"))

    def warm(self) -> None:
        """Load the model and open the indexes of every dataset, so that no query waits for it."""
        for name in self.library.datasets():
            self.service.retrieve("warm up", dataset=name, top_k=1)

    def close(self) -> None:
        """Release the library, and the threads of the search if there was one."""
        if "service" in vars(self):
            self.service.close()
        self.library.close()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
