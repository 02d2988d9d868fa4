"""What docs/agents.md shows is so."""

import re
from pathlib import Path

import pytest

from catalog.core.text import mark_as_data
from catalog.interfaces import agents as tools
from catalog.models import packaged

TEXT = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")


def test_the_python_lines_run_and_print_what_they_promise(notes, capsys):
    if packaged.locate(packaged.BGE_SMALL) is None:
        pytest.skip("bge-small is not installed: pip install '.[offline]'")
    from catalog.library.indexing import Indexer
    from catalog.library.library import Library

    with Library.open() as library:
        Indexer(library).build(notes, "notes")
    try:
        for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
            exec(compile(block, "agents.md", "exec"), {})
    finally:
        tools.close()
    out = capsys.readouterr().out
    assert "keys.md" in out
    assert " note: top_k 500 is out of range: 50 was taken" in out
    assert "['search_chunks', 'query_catalog', 'get', 'multi_get']" in out


def test_the_form_it_shows_is_the_one_that_tools_give():
    shown = re.search(
        r"(Between the two documents-(\w{16}) lines.*?</documents-\2>)", TEXT, re.DOTALL
    )
    assert shown is not None
    intro, *_, reference, end = shown[1].splitlines()
    given = mark_as_data("  x\n", draw=lambda: shown[2])
    assert given.splitlines()[0] == intro
    assert given.splitlines()[-1] == end
    assert re.fullmatch(r"    reference: vault:\S+ \(#\w{8}\), (exact|likely|possible)", reference)


def test_the_rule_it_quotes_is_the_guidances():
    for sentence in ("Use search_chunks when answering", "Use query_catalog to discover"):
        (line,) = [line for line in TEXT.splitlines() if line.startswith(sentence)]
        assert line in tools.agent_guidance()
