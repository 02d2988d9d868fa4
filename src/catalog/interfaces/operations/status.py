"""What the store holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog.interfaces.operations.calls import StatusCall
from catalog.search_v2.health import describe

if TYPE_CHECKING:
    from catalog.interfaces.operations.engine import LocalEngine


@dataclass(frozen=True, slots=True)
class Described:
    """See ``search_v2.health.describe``."""

    status: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return self.status


def run_status(engine: LocalEngine, call: StatusCall) -> Described:
    """The counts of now."""
    del call
    return Described(describe(engine.workspace))
