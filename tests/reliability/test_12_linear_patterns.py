"""No document and no model makes a regular expression slow: time grows as the text does."""

import re

import pytest

from hostile.patterns import patterns_of_package, slow_texts


@pytest.mark.slow
def test_every_pattern_takes_time_linear_in_the_text():
    found = patterns_of_package()
    assert len(found) > 300
    slow = {
        f"{one.where} {one.pattern.pattern!r}": text
        for one in found
        for text in [next(slow_texts(one.pattern, one.methods), None)]
        if text is not None
    }
    assert slow == {}


SLOW = (
    r"^\s*\|?[\s:|-]+\|?\s*$", r"\s+#+$", r"(?:a+)+b", r"(?:a|a)*b", r"x(\w+\s?)*:", r"\d+\.?\d*e",
    r"<b[^>]*>", r"\[(?:[^\[\]\\]|\\.)*\]", r"`([^`]+?)\s*<", rb"\w+:",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("pattern", SLOW)
def test_these_patterns_would_be_found(pattern):
    assert next(slow_texts(re.compile(pattern), {"search"}), None) is not None
