"""The details of a sentence that a careless copy gets wrong: numbers, dates, units and names.

Each detail is read into a value that is independent of its notation: 1,000 is *a thousand*, 50 % is
*50 percent*, 2024-05-31 is *May 31st, 2024*.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Literal, NamedTuple, TypeGuard

from catalog.store.lexical.analysis import fold
from catalog.store.lexical.languages import word_rules


class MeasurementUnit(NamedTuple):
    """A unit of ``factor`` base units of ``dimension``: 1 km is 1000 of ``length``.

    A unit that cannot be converted has its own dimension, such as ``money:usd``, in a ``family``.
    """

    dimension: str
    factor: float

    @property
    def family(self) -> str:
        """Return the kind of quantity: ``money`` for all currencies."""
        return self.dimension.split(":")[0]


_OFTEN = "rate"
_SHORT = 2  # letters up to which capitals matter: mM is not mm, and W is not w


def _read_table() -> dict[str, MeasurementUnit]:
    units: dict[str, MeasurementUnit] = {}
    table = files("catalog.answers").joinpath("units.txt").read_text("utf-8")
    for line in table.splitlines()[1:]:
        dimension, rest = line.split(maxsplit=1)
        for entry in rest.split(";"):
            factor, *names = entry.split()
            for name in names:
                units[name] = MeasurementUnit(dimension, float(factor))
                if name.isalpha() and len(name) > _SHORT:
                    units[f"{name}s"] = units[name]
    return units


_UNITS = _read_table()
PREFIXES = "$€£¥"
"""Units that stand before their number."""
_PART = r"[^\W\d_]+|%|‰|°\s?[CF]?|[$€£¥]"
_AFTER_NUMBER = re.compile(rf"[\s\u00a0-]?({_PART})(?:\s?/\s?({_PART})|\s+per\s+([^\W\d_]+))?")
_WORD = re.compile(r"[^\W\d_]+|[%‰]")


def find_unit(name: str) -> MeasurementUnit | None:
    """Return the unit of a name, else ``None``; short names need their exact letters."""
    name = name.replace(" ", "").replace("\u03bc", "µ").rstrip(".")
    if unit := _UNITS.get(name):
        return unit
    lower = name.lower()
    return _UNITS.get(lower) if len(name) > _SHORT or not name.isalpha() else None


def unit_after(text: str, end: int) -> tuple[MeasurementUnit, int] | None:
    """Return the unit directly after a number that ends there, and its end; also ``mg/kg``."""
    match = _AFTER_NUMBER.match(text, end)
    unit = None if match is None else find_unit(match[1])
    if match is None or unit is None:
        return None
    below = find_unit(match[2] or match[3]) if match[2] or match[3] else None
    if below is None:
        return unit, match.end(1)
    joined = MeasurementUnit(f"{unit.dimension}/{below.dimension}", unit.factor / below.factor)
    return joined, match.end()


def unit_words(text: str) -> list[tuple[MeasurementUnit, int, int]]:
    """Return the written units in the plural or with a frequency (``daily``), with their places.

    Singular units are left out, because many are also other words ("a second line").
    """
    found = ((find_unit(word.group()), word) for word in _WORD.finditer(text))
    return [
        (unit, *word.span())
        for unit, word in found
        if unit and len(word.group()) > _SHORT and (word.group()[-1] == "s" or _OFTEN in unit)
    ]


Kind = Literal["number", "date", "unit", "name"]


class Quantity(NamedTuple):
    """A number with its unit."""

    value: float
    unit: MeasurementUnit


class Date(NamedTuple):
    """The written parts of a date; a month, a day or a year may be alone."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    time: str | None = None


class Detail(NamedTuple):
    """``text[start:end]``, with its value.

    The value of a number is a float, of a name its words folded to lower case, of a unit a
    :class:`Quantity`, or a :class:`MeasurementUnit` if there is no number. ``certain`` is false for
    a name that may be a common word at the beginning of a sentence.
    """

    kind: Kind
    value: float | Date | Quantity | MeasurementUnit | tuple[str, ...]
    start: int
    end: int
    certain: bool = True


def is_name(value: object) -> TypeGuard[tuple[str, ...]]:
    """Return whether a detail's value is that of a name."""
    return type(value) is tuple


_MONTH_NAMES = "jan feb mar apr may jun jul aug sep oct nov dec"
_TABLE = tomllib.loads(files("catalog.answers").joinpath("details.toml").read_text("utf-8"))
_DATES = tuple(re.compile(form % _TABLE["parts"]) for form in _TABLE["dates"])
_WEEKDAY = re.compile(r"\b((?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)s?\b")
_NUMBER = re.compile(
    r"(?<![\w.])(?<![^\W\d_]-)(?P<sign>(?<![\w)\]%][-−–])[-−](?=\d))?"
    r"(?P<digits>\d{1,3}(?:[,\u00a0\u202f]\d{3})+(?!\d)(?:[.·]\d+)?|\d+(?:[.·]\d+)*)"
)
_DOTS = re.compile("[.·]")
_SCALE = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_SCALE |= {"hundred": 1e2, "bn": 1e9}
_SCALED = re.compile(r"[\s-](hundred|thousand|million|billion|trillion|bn)\b|([kM])(?![\w/])", re.I)
_SMALL_TEXT = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_TENS_TEXT = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL, _TENS = _SMALL_TEXT.split(), _TENS_TEXT.split()
_VALUES = {word: float(at) for at, word in enumerate(_SMALL)}
_VALUES |= {word: 10.0 * at for at, word in enumerate(_TENS, start=2)}
_WORD_NUMBER = re.compile(
    rf"\b(?:({'|'.join(_TENS)})[\s-]({'|'.join(_SMALL[1:10])})|({'|'.join(_VALUES)}))\b", re.I
)
_LETTERS = r"[^\W\d_]"
_NAME = re.compile(
    rf"[@_$]?(?<![\w])(?<!\w['’]){_LETTERS}[\w]*(?:(?:[.\-/]|::)(?=\w)[\w]+)*(?:\+\+|\#(?!\w))?"
)
_SENTENCE_START = re.compile(r"(?:\A|[.!?:;…\n•|(]|\*\*)[\s\"'“‘(\[*_>#-]{0,8}\Z")
_CODE_LIKE = re.compile(r"[_\d]|[a-z][A-Z]|\w(?:[./]|::)\w|\+\+|#|\A[A-Z]{2,}s?\Z|[A-Z]{2,}")
_JOINED = re.compile(r"[ \u00a0]|[ ](?:of|de|van|von|der|the)[ ]")
_NOT_NAMES_TEXT = "I I'm I'll I've I'd AND OR NOT NO YES THE IF VS e.g i.e etc a.m p.m and/or"
_NOT_NAMES = frozenset(_NOT_NAMES_TEXT.split())


def find_details(text: str) -> list[Detail]:
    """Return the details of a text in order; those of one kind do not overlap."""
    taken = bytearray(len(text))
    dates = list(_find_dates(text, taken))
    numbers = list(_find_numbers(text, taken))
    names = list(_find_names(text, taken))
    return sorted((*dates, *numbers, *names), key=lambda detail: (detail.start, detail.end))


def _find_dates(text: str, taken: bytearray) -> Iterator[Detail]:
    for form in _DATES:
        for match in form.finditer(text):
            start, end = match.span()
            date = _read_date(match.groupdict())
            if date is None or any(taken[start:end]):
                continue
            if date[1:] == (None, None, None) and unit_after(text, end) is not None:
                continue  # 2000 mg
            taken[start:end] = b"\1" * (end - start)
            yield Detail("date", date, start, end)
    for match in _WEEKDAY.finditer(text):
        taken[match.start() : match.end()] = b"\1" * (match.end() - match.start())
        yield Detail("date", Date(time=match[1].lower()), *match.span())


def _read_date(parts: dict[str, str | None]) -> Date | None:
    if parts.get("time"):
        hours, _, rest = str(parts["time"]).partition(":")
        return Date(time=f"{int(hours)}:{rest}")
    year, day = parts.get("year"), parts.get("day")
    number = parts.get("number")
    month = int(number) if number else None
    if name := parts.get("month"):
        month = _MONTH_NAMES.index(name[:3].lower()) // 4 + 1
    if parts.get("first"):
        first, second = int(parts["first"] or 0), int(parts["second"] or 0)
        month, day = (second, str(first)) if first > 12 else (first, str(second))
    if (month or 1) > 12 or int(day or 1) > 31:
        return None
    return Date(int(year) if year else None, month, int(day) if day else None)


def _find_numbers(text: str, taken: bytearray) -> Iterator[Detail]:
    """Find numbers in digits and in words, with the units after (or before) them."""
    found = [(match.start(), *_read_number(text, match)) for match in _NUMBER.finditer(text)]
    found += [(match.start(), *_read_words(text, match)) for match in _WORD_NUMBER.finditer(text)]
    for start, value, end in sorted(found):
        if any(taken[start:end]):
            continue
        taken[start:end] = b"\1" * (end - start)
        if value is None:
            continue
        before = text[start - 1 : start]
        unit = find_unit(before) if before and before in PREFIXES else None
        after = unit_after(text, end)
        if unit is None and after is not None:
            unit = after[0]
            taken[end : after[1]] = b"\1" * (after[1] - end)
        is_word = text[start].isalpha()
        yield Detail("number", value, start, end, certain=not (is_word and value < 2))
        if unit is not None:
            last = end if after is None else after[1]
            yield Detail("unit", Quantity(value, unit), start, last)
    for unit, start, end in unit_words(text):
        if not any(taken[start:end]):
            yield Detail("unit", unit, start, end)


def _read_number(text: str, match: re.Match[str]) -> tuple[float | None, int]:
    digits = re.sub("[,\u00a0\u202f]", "", match["digits"])
    whole, *parts = _DOTS.split(digits)
    after = text[match.end() : match.end() + 1]
    if len(parts) > 1:  # a version: its first two parts, then the others
        value = float(f"{whole}.{parts[0]}") + sum(int(p) * 1e-6**n for n, p in enumerate(parts, 1))
        return value, match.end()
    value = float(".".join((whole, *parts)))
    end = match.end()
    if scaled := _SCALED.match(text, end):
        scale = _SCALE[scaled[1].lower()] if scaled[1] else {"k": 1e3, "M": 1e6}.get(scaled[2], 1e3)
        return value * scale, scaled.end()
    if after.isalpha() and unit_after(text, end) is None:
        rest = re.compile(r"\w+").match(text, end)
        is_counted = rest is not None and rest.group().lower() in ("st", "nd", "rd", "th", "x", "s")
        if not is_counted:
            return None, match.start()  # of a name such as 3D
    return -value if match["sign"] else value, end


def _read_words(text: str, match: re.Match[str]) -> tuple[float, int]:
    tens, ones, alone = match.groups()
    value = _VALUES[alone.lower()] if alone else _VALUES[tens.lower()] + _VALUES[ones.lower()]
    scaled = _SCALED.match(text, match.end())
    if scaled and scaled[1]:
        return value * _SCALE[scaled[1].lower()], scaled.end()
    return value, match.end()


def _find_names(text: str, taken: bytearray) -> Iterator[Detail]:
    """Find capitalised words within sentences, consecutive ones as one, and code-like words."""
    words = [word for word in _NAME.finditer(text) if not any(taken[word.start() : word.end()])]
    group: list[re.Match[str]] = []
    for word in words:
        name = word.group()
        is_name = name not in _NOT_NAMES and (
            _CODE_LIKE.search(name) is not None or name[0].isupper()
        )
        if group and not (is_name and _JOINED.fullmatch(text, group[-1].end(), word.start())):
            yield from _make_name(text, group)
            group = []
        if is_name:
            group.append(word)
    if group:
        yield from _make_name(text, group)


def _make_name(text: str, group: list[re.Match[str]]) -> Iterator[Detail]:
    first = group[0]
    starts = _SENTENCE_START.search(text, max(0, first.start() - 8), first.start())
    is_common = len(group) == 1 or first.group().lower() in _stop_words()
    if starts and is_common and _CODE_LIKE.search(first.group()) is None:
        if first.group().lower() not in _stop_words():
            yield Detail("name", (fold(first.group()),), *first.span(), certain=False)
        group = group[1:]
    if group:
        words = tuple(fold(word.group()) for word in group)
        yield Detail("name", words, group[0].start(), group[-1].end())


def _stop_words() -> frozenset[str]:
    return word_rules("english").stop_words
