"""Reading arguments as language models write them, where what they mean is beyond doubt."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from catalog.core.errors import InputError
from catalog.core.text import storable

_LARGEST = 2**63 - 1


def coerce_arguments(
    model: type[BaseModel],
    clamped: Mapping[str, tuple[int, int]],
    arguments: Mapping[str, Any],
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments without those that say nothing, and the notes of what was clamped.

    Null, a blank text and a list of blank texts say nothing for an optional argument. A number
    with nothing after the point is a whole one, and a character that no document can hold becomes
    U+FFFD. Raises :class:`InputError` for a blank text where one is needed, and for a number that
    is no number of anything.
    """
    given: dict[str, Any] = {}
    notes = []
    for name, value in arguments.items():
        field = model.model_fields.get(name)
        if field is None:
            given[name] = value
            continue
        if field.is_required():
            _check_said(name, value)
        elif _says_nothing(value):
            continue
        if isinstance(value, list):
            value = [_storable(one) for one in value if not _is_blank(one)]
        value = _storable(value)
        if name in _whole_numbers(model):
            value, note = _whole(name, value, clamped.get(name))
            notes += note
        given[name] = value
    return given, tuple(notes)


def _check_said(name: str, value: Any) -> None:
    if _is_blank(value) or (isinstance(value, list) and all(map(_is_blank, value))):
        raise InputError(f"the argument {name} is blank: say what to look for")


def _says_nothing(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_blank, value))
    return value is None or _is_blank(value)


def _storable(value: Any) -> Any:
    return storable(value) if isinstance(value, str) else value


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _whole(name: str, value: Any, bounds: tuple[int, int] | None) -> tuple[Any, list[str]]:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return value, []
    if bounds is None:
        if abs(value) > _LARGEST:
            raise InputError(f"{name}: the number is too large")
        return value, []
    taken = min(max(value, bounds[0]), bounds[1])
    told = value if abs(value) <= _LARGEST else "of that size"
    return taken, [f"{name} {told} is out of range: {taken} was taken"] if taken != value else []


@cache
def _whole_numbers(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if field.annotation is int or int in get_args(field.annotation)
    )
