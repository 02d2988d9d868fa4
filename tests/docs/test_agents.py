"""What docs/start/agents.md shows is so."""

import re
from pathlib import Path

from catalog.core.text import mark_as_data
from catalog.interfaces.guidance import agent_guidance

TEXT = (Path(__file__).parents[2] / "docs" / "start" / "agents.md").read_text(encoding="utf-8")


def test_the_form_it_shows_is_the_one_that_tools_give():
    shown = re.search(
        r"(Between the two documents-(\w{16}) lines.*?</documents-\2>)", TEXT, re.DOTALL
    )
    assert shown is not None
    intro, *_, reference, end = shown[1].splitlines()
    given = mark_as_data("  x\n", draw=lambda: shown[2])
    assert given.splitlines()[0] == intro
    assert given.splitlines()[-1] == end
    form = r"    reference: vault:[^()]+ \(#\w{8}\), (exact|likely|possible)"
    assert re.fullmatch(form, reference)


def test_the_rule_it_quotes_is_the_guidances():
    for sentence in ("Use search_chunks when answering", "Use query_catalog to discover"):
        (line,) = [line for line in TEXT.splitlines() if line.startswith(sentence)]
        assert line in agent_guidance()
