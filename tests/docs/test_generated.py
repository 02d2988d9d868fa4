"""The generated pages of docs/ say what the code says."""

import pytest

from docs.generated import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "96")
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run: python tests/docs/generated.py"
