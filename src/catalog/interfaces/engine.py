"""What answers verbs: this process, with everything it keeps open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from catalog.core.agent_calls import read_agent, with_agent
from catalog.core.errors import InputError
from catalog.core.param_fields import read_params
from catalog.core.params import AskParams, GenerateParams, SearchParams

if TYPE_CHECKING:
    from types import TracebackType

    from catalog.core.answers import AnswerEvent
    from catalog.library.library import Library
    from catalog.library.query_log import Outcome
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

    def check_store(self) -> None:
        """Raise an error where the store cannot be read."""
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
        self._require_models(params)
        return VERBS[verb].run(self, params)

    def ask(self, verb: str, arguments: Mapping[str, Any], /) -> dict[str, Any]:
        """Return the answer's JSON object; raise as :meth:`answer`."""
        from catalog.interfaces.calls import to_json

        return to_json(self.answer(verb, arguments))

    def answer_events(self, arguments: Mapping[str, Any]) -> Iterator[AnswerEvent]:
        """Yield what an answer is told by: results, sentences, the whole; raises as the verb does.

        Arguments are checked at once, before the first event.
        """
        params = read_params(AskParams, arguments, "ask")
        self._require_models(params)
        from catalog.answers.answering import answer_events

        return answer_events(self.service, params)

    def _require_models(self, params: object) -> None:
        """Raise before the search is loaded, which takes a second, if a model of it is missing."""
        if "service" not in vars(self) and isinstance(
            params, SearchParams | AskParams | GenerateParams
        ):
            if params.agent is not None:  # whose mode may need no model
                params = with_agent(params, read_agent(self.library.settings, params.agent))
            self.library.require_models(mode=params.mode or "hybrid", rerank=params.rerank)

    def check_store(self) -> None:
        """Read one row of the store; raise :class:`StoreError` where that cannot be done."""
        self.library.database.meta("store_id")

    def observe(self, observer: Callable[[Outcome], None]) -> None:
        """Call ``observer`` with how each question at an edge went."""
        self.library.log.observer = observer

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
