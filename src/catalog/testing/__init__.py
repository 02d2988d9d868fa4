"""The contract suites of engines, for people who write one: see ``docs/how-to/write-an-engine.md``.

They need pytest and hypothesis: ``pip install 'catalog-search[testing]'``.
"""

from __future__ import annotations

from catalog.core.errors import MissingExtraError

try:
    import hypothesis  # noqa: F401
    import pytest
except ImportError as error:
    raise MissingExtraError("catalog.testing", "testing") from error

for _name in ("lexical", "lexical_restrictions", "vectors"):
    pytest.register_assert_rewrite(f"catalog.testing.{_name}")
