"""The table of vectors in a ``.safetensors`` file, as WordLlama and Model2Vec keep it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from catalog.core.errors import ModelUnavailableError

_TYPES = {"F16": "<f2", "F32": "<f4"}  # of safetensors, and numpy's names of them
_MAX_HEADER = 100_000_000  # bytes, as the format's own reader takes


class StaticTable(NamedTuple):
    """Where the vectors by token number lie: shape ``(tokens, dim)``, numpy's type, first byte."""

    shape: tuple[int, int]
    dtype: str
    offset: int


def find_table(file: Path) -> StaticTable:
    """Return the place of the only table; raise :class:`ModelUnavailableError` if there is none.

    A safetensors file is the length of its header in eight bytes, the header in JSON with
    type, shape and place of each tensor, and the tensors.
    """
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length)) if length <= _MAX_HEADER else {}
        tables = [it for name, it in header.items() if name != "__metadata__"]
        tables = [it for it in tables if len(it["shape"]) == 2 and it["dtype"] in _TYPES]
        (table,) = tables
        tokens, dim = table["shape"]
        return StaticTable(
            (tokens, dim), _TYPES[table["dtype"]], 8 + length + table["data_offsets"][0]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelUnavailableError(f"{file} is not one table of vectors") from error
