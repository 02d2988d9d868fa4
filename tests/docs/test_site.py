"""The pages of docs/ are listed, their links lead somewhere, and the site builds strictly."""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITTEN = runpy.run_path(str(DOCS / "generated.py"))["PAGES"]
PAGES = {str(page.relative_to(DOCS)): page.read_text("utf-8") for page in DOCS.rglob("*.md")}
LINK = re.compile(r"\]\(([^)\s]+)\)")


def listed(nav):
    """Return every page that a navigation names."""
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from listed(value) if isinstance(value, list) else [value]


def test_every_page_is_listed_once():
    told = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace("!!python/name:", "")
    nav = yaml.safe_load(told)["nav"]
    pages = {*PAGES, *WRITTEN}
    assert sorted(listed(nav)) == sorted(name for name in pages if not name.startswith("decisions"))


def anchors(text):
    """Return the anchors of a page's headings, as MkDocs names them."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ (.*)$", plain, re.MULTILINE):
        kept = re.sub(r"[^\w\s-]", "", re.sub(r"\]\([^)]*\)", "", heading)).strip().lower()
        yield re.sub(r"[-\s]+", "-", kept)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_link_of_a_page_leads_to_a_page_and_a_heading(name):
    text = re.sub(r"^```.*?^```", "", PAGES[name], flags=re.DOTALL | re.MULTILINE)
    for target in LINK.findall(text):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        other = os.path.normpath(Path(name).parent / path) if path else name
        assert other in PAGES or other in WRITTEN or (DOCS / other).exists(), target
        if anchor and other in PAGES:
            assert anchor in set(anchors(PAGES[other])), target


def test_paths_of_docs_in_code_and_settings_exist():
    places = [*(ROOT / "src").rglob("*.py"), *(ROOT / "configs").glob("*.toml")]
    for place in [*places, *(ROOT / "deploy").iterdir(), ROOT / "CONTRIBUTING.md"]:
        for path in re.findall(r"docs/((?:[\w-]+/)*[\w-]+\.md)", place.read_text("utf-8")):
            assert path in PAGES or path in WRITTEN, (place, path)


@pytest.mark.slow
def test_the_site_builds_strictly_and_needs_no_network(tmp_path):
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: pip install -c constraints.txt '.[docs]'")
    told = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "96", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    loaded = re.compile(r"<(?:script|img|link rel=.stylesheet.)[^>]*(?:src|href)=.(?:https?:)?//")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)
    assert [page for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []
    for picture in (tmp_path / "site").rglob("*.svg"):
        assert "url(http" not in picture.read_text(encoding="utf-8").replace('"', "")
