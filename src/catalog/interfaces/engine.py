"""Who answers: this process, with everything it keeps open."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from catalog.core.errors import InputError
from catalog.interfaces.calls import CallResult

if TYPE_CHECKING:
    from types import TracebackType

    from catalog.library.browse import DocumentCatalog
    from catalog.library.library import Library
    from catalog.search_v2.service import SearchServiceV2


_LOADING = Lock()
"""LlamaIndex's modules import one another: loaded by two threads at once they fail."""


class Engine(Protocol):
    """Answers operations, here or in another process. Thread-safe."""

    def ask(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The answer's JSON object; raises what the operation raises, wherever it ran."""
        ...

    def close(self) -> None:
        """Release what it holds; safe to call twice."""
        ...


class LocalEngine:
    """Answers in this process from one library, which it closes."""

    def __init__(self, library: Library) -> None:
        self.library = library

    @cached_property
    def service(self) -> SearchServiceV2:
        """The search; LlamaIndex loads with it, and no other operation needs that."""
        with _LOADING:
            from catalog.search_v2.service import SearchServiceV2

        return SearchServiceV2(self.library)

    @cached_property
    def catalog(self) -> DocumentCatalog:
        """The documents there are."""
        from catalog.library.browse import DocumentCatalog

        return DocumentCatalog(self.library)

    def dataset(self, named: str | None) -> str:
        """See ``Library.chosen_dataset``."""
        return self.library.chosen_dataset(named)

    def answer(self, operation: str, arguments: Mapping[str, Any]) -> CallResult:
        """What the operation finds; raises :class:`InputError` for one there is not."""
        from catalog.interfaces.calls import VERBS

        found = VERBS.get(operation)
        if found is None:
            known = ", ".join(VERBS)
            raise InputError(f"there is no operation {operation!r}; operations: {known}")
        answer: CallResult = found.run(self, found.read(arguments))
        return answer

    def ask(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """See :class:`Engine`."""
        return self.answer(operation, arguments).to_dict()

    def warm(self) -> None:
        """Load the model and open the indexes of every dataset, so that no query waits for it."""
        for name in self.library.datasets():
            self.service.retrieve("warm up", dataset=name, top_k=1)

    def close(self) -> None:
        """Release the library."""
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
