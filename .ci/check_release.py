"""Check that a tag, the version of the code, the changelog and every manifest agree.

    python .ci/check_release.py v0.1.0

Without a tag only the files are compared. It exits with 1 and names what differs. It needs no
package, and does not import ``catalog``.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def read_versions() -> dict[str, str]:
    """Return the version that each file states, by file."""

    def find(file: str, pattern: str) -> str:
        found = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
        return found[1] if found else "none"

    server = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
    plugin = json.loads((ROOT / ".claude-plugin" / "plugin.json").read_text(encoding="utf-8"))
    return {
        "src/catalog/__init__.py": find("src/catalog/__init__.py", r'^__version__ = "(.+)"$'),
        "CHANGELOG.md": find("CHANGELOG.md", r"^## (\S+?)(?:,|\s|$)"),
        "CITATION.cff": find("CITATION.cff", r"^version: (\S+)$"),
        "server.json": server["version"],
        "server.json, package": server["packages"][0]["version"],
        ".claude-plugin/plugin.json": plugin["version"],
    }


def find_differences(tag: str | None) -> list[str]:
    """Return a sentence for each place that states another version than the code or the tag."""
    versions = read_versions()
    version = versions["src/catalog/__init__.py"]
    wrong = [f"{place} says {said}" for place, said in versions.items() if said != version]
    if tag is not None and tag != f"v{version}":
        wrong.append(f"the tag is {tag}, not v{version}")
    files = ("server.json", "pyproject.toml") if tag is not None else ()
    wrong += [
        f"{file} has the placeholder OWNER: put the account there that publishes"
        for file in files
        if "OWNER" in (ROOT / file).read_text(encoding="utf-8")
    ]
    heading = f"## {version}, not released yet"
    if tag is not None and heading in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        wrong.append("CHANGELOG.md says that it is not released yet: put the date there")
    return wrong


if __name__ == "__main__":
    differences = find_differences(sys.argv[1] if len(sys.argv) > 1 else None)
    print("\n".join(differences) or "every file states the same version")
    sys.exit(bool(differences))
