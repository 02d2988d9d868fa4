"""The tool that tells what the store holds: ``status``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from catalog.interfaces.tools.arguments import StatusArguments
from catalog.interfaces.tools.base import ToolData, ToolResult
from catalog.interfaces.tools.cleaning import one_line
from catalog.interfaces.tools.wording import tool_result

if TYPE_CHECKING:
    from catalog.interfaces.operations import Engine


class DatasetStatus(BaseModel):
    """Counts of one dataset. ``embedded`` below 1: some text cannot be found by meaning yet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    documents: int
    passages: int
    modalities: dict[str, int]
    embedded: float
    updated: str


class StatusData(ToolData):
    """What there is to search, and with what."""

    datasets: tuple[DatasetStatus, ...] = ()
    model: str | None = None
    lexical_engine: str | None = None
    vector_engine: str | None = None


def run_status(engine: Engine, asked: StatusArguments, notes: tuple[str, ...]) -> ToolResult:
    """The counts of now."""
    del asked
    found = engine.ask("status", {})
    datasets = tuple(_dataset(one) for one in found["datasets"])
    data = StatusData(
        status="ok" if datasets else "no_results",
        message=None if datasets else "no results: nothing has been indexed yet",
        notes=notes,
        datasets=datasets,
        model=found["model"],
        lexical_engine=found["lexical_engine"],
        vector_engine=found["vector_engine"],
    )
    return tool_result(data, ours=_lines(data))


def _dataset(found: Mapping[str, Any]) -> DatasetStatus:
    windows = found["windows"]
    updated = datetime.fromtimestamp(found["updated_at"], UTC)
    return DatasetStatus(
        name=one_line(found["dataset"]),
        documents=found["documents"],
        passages=found["chunks"],
        modalities=found["modalities"],
        embedded=found["vectors"] / windows if windows else 1.0,
        updated=updated.isoformat(timespec="seconds"),
    )


def _lines(data: StatusData) -> Iterator[str]:
    for one in data.datasets:
        kinds = ", ".join(f"{name} {count}" for name, count in one.modalities.items())
        yield (
            f"dataset {one.name}: {one.documents} documents, {one.passages} passages ({kinds}), "
            f"{one.embedded:.0%} embedded, updated {one.updated}"
        )
    yield f"model: {data.model}; engines: {data.lexical_engine}, {data.vector_engine}"
