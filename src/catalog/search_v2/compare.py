"""One question put to the baseline as well: what each found that the other did not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Lock

from catalog.core.results import Comparison, Latency, RankChange
from catalog.core.settings import Settings
from catalog.core.user_search import Ranking, UserSearch


class Baseline:
    """The search named by the settings, loaded at the first question; safe between threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._search: UserSearch | None = None
        self._warm: set[str] = set()
        self._lock = Lock()

    @property
    def name(self) -> str:
        """The dotted path."""
        return self._settings.rag_v2.baseline

    def is_warm(self, dataset: str) -> bool:
        """Whether it was asked about the dataset before."""
        return dataset in self._warm

    def ask(
        self,
        query: str,
        *,
        dataset: str,
        top_k: int,
        mode: str,
        filters: object,
        doc_ids: list[str] | None,
    ) -> tuple[Ranking, float, str]:
        """Its answer, the milliseconds that took, and what it could not be asked; raises as it.

        The first question of a dataset is asked twice and the second timed: the first may build
        an index or load a model.
        """
        with self._lock:
            search = self._search = self._search or UserSearch(self.name)
        for _ in range(1 if self.is_warm(dataset) else 2):
            started = time.perf_counter()
            answer = search.search(
                query,
                dataset=dataset,
                top_k=top_k,
                mode=mode,
                filters=filters,
                doc_ids=doc_ids,
                settings=self._settings,
            )
            ms = (time.perf_counter() - started) * 1000
        self._warm.add(dataset)
        narrowed = {"filters": filters, "doc_ids": doc_ids}
        asked = [name for name, value in narrowed.items() if value is not None]
        ignored = " and ".join(search.unsupported(asked))
        return answer, ms, f"asked without {ignored}, which it does not take" if ignored else ""


def compared(
    name: str,
    v1: Sequence[str],
    v2: Sequence[str],
    *,
    v1_ms: float,
    v2_ms: float,
    note: str = "",
) -> Comparison:
    """Two ranked lists of paths, side by side; a path counts where it stands first."""
    first, second = list(dict.fromkeys(v1)), list(dict.fromkeys(v2))
    ranks = {path: rank for rank, path in enumerate(first, start=1)}
    both = [path for path in second if path in ranks]
    either = len(first) + len(second) - len(both)
    return Comparison(
        baseline=name,
        overlap=len(both) / either if either else 1.0,
        only_v1=tuple(path for path in first if path not in both),
        only_v2=tuple(path for path in second if path not in ranks),
        rank_changes=tuple(
            RankChange(path=path, v1=ranks[path], v2=rank)
            for rank, path in enumerate(second, start=1)
            if path in ranks and ranks[path] != rank
        ),
        latency_ms=Latency(v1=round(v1_ms, 3), v2=round(v2_ms, 3)),
        note=note,
    )


def not_compared(name: str, v2: Sequence[str], *, v2_ms: float, error: str) -> Comparison:
    """What there is to say when the baseline failed."""
    return Comparison(
        baseline=name,
        overlap=0.0,
        only_v1=(),
        only_v2=tuple(dict.fromkeys(v2)),
        rank_changes=(),
        latency_ms=Latency(v1=0.0, v2=round(v2_ms, 3)),
        error=error,
    )
