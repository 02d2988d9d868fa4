"""Fixtures for every test, and an environment that settings of the machine cannot reach."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

for variable in [name for name in os.environ if name.startswith("IDX_") and "TEST" not in name]:
    del os.environ[variable]
os.environ["HF_HUB_OFFLINE"] = "1"

DATA = Path(__file__).parents[1].parent / "shared" / "data"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of three small documents on different matters."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "keys.md").write_text(
        "---\ntags: [ops, security]\n---\n# Keys\n\n## Rotating\n\n"
        "Rotate the API keys every ninety days with the keys command.\n\n"
        "## Revoking\n\nA leaked key is revoked in the admin console at once.\n"
    )
    (folder / "bread.txt").write_text(
        "Mix flour, water and yeast. Bake the bread at 230 degrees.\n"
    )
    (folder / "guides").mkdir()
    (folder / "guides" / "backup.md").write_text(
        "# Backups\n\nBackups run at midnight and are kept for thirty days.\n"
    )
    return folder
