"""Install a wheel into a fresh environment, and use it from a folder that is no checkout.

    python .ci/try_wheel.py dist/*.whl [--extra offline]

Runs on Linux, macOS and Windows. The commands are those a newcomer types first. It exits with 1
at the first command that fails or does not print what it should.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEYS = "# Keys\n\n## Rotating\n\nRotate the API keys every ninety days.\n"
BREAD = "Mix flour, water and yeast. Bake the bread at 230 degrees.\n"
QUESTION = "how often are keys rotated"
SEARCH = """
from pathlib import Path
import catalog
from catalog import search_v2
hits = list(search_v2.search("how often are keys rotated", dataset="notes", top_k=1))
print(hits[0].path, Path(catalog.__file__).parts.count("site-packages"))
"""
SHAKE_HANDS = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "try_wheel", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
]
COMMANDS: list[tuple[list[str], str]] = [
    (["--version"], "catalog "),
    (["--help"], "search"),
    (["config"], "IDX_HOME"),
    (["index", "build", "notes", "--dataset", "notes"], ""),
    (["search", QUESTION, "--dataset", "notes", "--top-k", "1"], "keys.md:"),
    (["search", QUESTION, "--mode", "lexical", "--json"], '"path": "keys.md"'),
    (["ask", QUESTION], "ninety days"),
    (["get", "notes:keys.md"], "Rotate the API keys"),
    (["browse", "--type", "md"], "keys.md"),
    (["status"], "notes"),
    (["doctor"], "ok  "),
    (["validate", "--example"], "READY"),
    (["golden", "check", "golden.jsonl", "--dataset", "notes"], ""),
    (["compare", "--golden", "golden.jsonl", "--report", "report.html"], "nDCG@10"),
    (["eval", "--golden", "golden.jsonl", "--mode", "lexical"], "nDCG@10"),
    (["backup", "copy.db"], ""),
    (["export", "export.jsonl"], ""),
]
"""What to run, in this order, and what it has to print."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--extra", default="offline")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        away = Path(folder)
        scripts = _install(arguments.wheel.resolve(), arguments.extra, away / "venv")
        return _try(scripts, away)


def _install(wheel: Path, extra: str, place: Path) -> Path:
    """Make an environment with the wheel in it and return the folder of its commands."""
    venv.create(place, with_pip=True)
    scripts = place / ("Scripts" if os.name == "nt" else "bin")
    wanted = f"{wheel}[{extra}]"
    constraints = ["-c", str(ROOT / "constraints.txt")]
    install = [str(scripts / "python"), "-m", "pip", "install", "--quiet", *constraints, wanted]
    subprocess.run(install, check=True)
    return scripts


def _try(scripts: Path, away: Path) -> int:
    """Run every command in ``away`` and return 0, or 1 with what went wrong."""
    (away / "notes").mkdir()
    (away / "notes" / "keys.md").write_text(KEYS, encoding="utf-8")
    (away / "notes" / "bread.txt").write_text(BREAD, encoding="utf-8")
    labelled = [
        {"id": "q1", "query": QUESTION, "expected": [{"path": "keys.md", "grade": 3}]},
        {"id": "q2", "query": "how hot is the oven", "expected": [{"path": "bread.txt"}]},
    ]
    lines = "".join(json.dumps(one) + "\n" for one in labelled)
    (away / "golden.jsonl").write_text(lines, encoding="utf-8")
    catalog, python = str(scripts / "catalog"), str(scripts / "python")
    handshake = "".join(json.dumps(one) + "\n" for one in SHAKE_HANDS)
    presets = sorted(one.stem for one in (ROOT / "configs").glob("*.toml"))
    runs = [([catalog, *words], "", expected) for words, expected in COMMANDS]
    runs += [([catalog, "config", "--preset", one], "", "") for one in presets]
    runs += [([python, "-c", SEARCH], "", "keys.md 1")]
    runs += [([catalog, "mcp"], handshake, '"search_chunks"')]
    environment = {**os.environ, "IDX_HOME": str(away / "home"), "IDX_EMBEDDING__OFFLINE": "true"}
    environment.pop("PYTHONPATH", None)
    for command, given, expected in runs:
        done = subprocess.run(
            command, cwd=away, env=environment, input=given, capture_output=True, encoding="utf-8"
        )
        shown = " ".join([Path(command[0]).stem, *command[1:]]).strip()
        if done.returncode != 0 or expected not in done.stdout:
            print(f"FAILED with {done.returncode}: {shown}\n{done.stdout}\n{done.stderr}")
            return 1
        print(f"ok: {shown.splitlines()[0]}", flush=True)
    print(f"{len(runs)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
