"""Three small documents on different matters, for the tests that ask about any documents."""

from pathlib import Path


def write_notes(folder: Path) -> Path:
    """Write them to a new folder."""
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
