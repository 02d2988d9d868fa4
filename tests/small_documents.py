"""Three small documents on different matters, for the tests that ask about any documents."""

from pathlib import Path

NOTES = {
    "notes/keys.md": (
        "---\ntags: [ops, security]\n---\n# Keys\n\n## Rotating\n\n"
        "Rotate the API keys every ninety days with the keys command.\n\n"
        "## Revoking\n\nA leaked key is revoked in the admin console at once.\n"
    ),
    "notes/bread.txt": "Mix flour, water and yeast. Bake the bread at 230 degrees.\n",
    "notes/guides/backup.md": (
        "# Backups\n\nBackups run at midnight and are kept for thirty days.\n"
    ),
}


def write_notes(folder: Path) -> Path:
    """Write them to a new folder."""
    for name, text in NOTES.items():
        path = folder / name.removeprefix("notes/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
