"""Units of measurement that a sentence may name, and what they are worth in one of their kind."""

from __future__ import annotations

import re
from typing import NamedTuple


class MeasurementUnit(NamedTuple):
    """One of these is ``factor`` base units of ``dimension``: 1 km is 1000 of ``length``.

    What cannot be converted has a dimension of its own, such as ``money:usd``, in a ``family``.
    """

    dimension: str
    factor: float

    @property
    def family(self) -> str:
        """Return what such units measure: ``money`` of all currencies."""
        return self.dimension.split(":")[0]


_DAY = 86_400.0
_TABLE = """
    mass      1e-9 ng nanogram; 1e-6 µg ug mcg microgram; 1e-3 mg milligram; 1 g gram gramme
    mass      1e3 kg kilogram kilo; 1e6 t tonne ton; 453.59237 lb lbs pound; 28.349523 oz ounce
    length    1e-9 nm nanometer nanometre; 1e-6 µm um micrometer micrometre micron
    length    1e-3 mm millimeter millimetre; 1e-2 cm centimeter centimetre; 1 m meter metre
    length    1e3 km kilometer kilometre; .0254 inch inches; .3048 ft foot feet; 1609.344 mile
    length    .9144 yard
    volume    1e-6 µl ul microliter microlitre; 1e-3 ml milliliter millilitre; 1e-1 dl deciliter
    volume    1 l liter litre; 3.785411784 gallon
    amount    1e-9 nmol nanomole; 1e-6 µmol umol micromole; 1e-3 mmol millimole; 1 mol mole
    molarity  1e-9 nM nanomolar; 1e-6 µM uM micromolar; 1e-3 mM millimolar
    time      1e-9 ns nanosecond; 1e-6 µs us microsecond; 1e-3 ms msec millisecond
    time      1 s sec secs second; 60 min mins minute; 3600 h hr hrs hour; 86400 day
    time      604800 wk wks week; 2629746 month; 31556952 yr yrs year; 315569520 decade
    time      3155695200 century centuries
    rate      86400 hourly; 3600 daily; 520 weekly; 120 monthly; 30 quarterly; 10 yearly annually
    data      .125 bit; 1 byte bytes; 1e3 kB KB kb kilobyte; 1e6 MB mb megabyte; 1e9 GB gigabyte
    data      1e12 TB terabyte; 1e15 PB petabyte; 1024 KiB kib; 1048576 MiB mib; 1073741824 GiB gib
    speed     125 kbps kbit Kbit; 125000 Mbps mbps Mbit; 125000000 Gbps gbps Gbit
    share     .01 % percent pct; .001 ‰ permille
    heat:c    1 °c celsius
    heat:f    1 °f fahrenheit
    heat:k    1 kelvin
    energy    4.184 cal calorie; 4184 kcal kilocalorie; 1 joule; 1e3 kJ kilojoule; 3.6e6 kWh kwh
    power     1e-3 mW milliwatt; 1 W watt; 1e3 kW kilowatt; 1e6 MW megawatt; 1e9 GW gigawatt
    frequency 1 Hz hz hertz; 1e3 kHz khz kilohertz; 1e6 MHz mhz megahertz; 1e9 GHz ghz gigahertz
    voltage   1e-3 mV millivolt; 1 V volt; 1e3 kV kilovolt
    pressure  1 Pa pascal; 1e3 kPa kpa kilopascal; 133.322 mmHg mmhg; 1e5 bar
    money:usd 1 $ usd dollar
    money:eur 1 € eur euro
    money:gbp 1 £ gbp
    money:jpy 1 ¥ jpy yen
    money:chf 1 chf franc
    money:c   1 cent
    screen:px 1 px pixel
    screen:pt 1 pt
    screen:em 1 em; 2 rem
    screen:d  1 dpi; 2 ppi
    angle     1 ° degree; 57.295779513 radian
    area      1e4 hectare; 4046.8564224 acre
    text:t    1 token
    text:c    1 character
    text:w    1 word
    text:l    1 line
    text:p    1 page
"""
_OFTEN = "rate"
_SHORT = 2  # letters up to which capitals matter: mM is not mm, and W is not w


def _read_table() -> dict[str, MeasurementUnit]:
    units: dict[str, MeasurementUnit] = {}
    for line in filter(None, map(str.strip, _TABLE.splitlines())):
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
    """Return the unit of that name, ``None`` if it is none; short ones by their exact letters."""
    name = name.replace(" ", "").replace("\u03bc", "µ").rstrip(".")
    if unit := _UNITS.get(name):
        return unit
    lower = name.lower()
    return _UNITS.get(lower) if len(name) > _SHORT or not name.isalpha() else None


def unit_after(text: str, end: int) -> tuple[MeasurementUnit, int] | None:
    """Return the unit right after a number that ends there, and where it ends; one of ``mg/kg``."""
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
    """Return the units of a text that are written out in the plural or say how often (``daily``).

    Each with where it stands. In the singular too many are something else: a second line.
    """
    found = ((find_unit(word.group()), word) for word in _WORD.finditer(text))
    return [
        (unit, *word.span())
        for unit, word in found
        if unit and len(word.group()) > _SHORT and (word.group()[-1] == "s" or _OFTEN in unit)
    ]
