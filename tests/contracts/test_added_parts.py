"""Embedding providers and readers that other packages add by entry point."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from catalog.core import entry_points
from catalog.core.errors import ConfigError
from catalog.core.settings import EmbeddingSettings
from catalog.core.settings.sections import EMBEDDING_PROVIDERS
from catalog.embedding import PROVIDERS, get_encoder
from catalog.ingest.readers import read_file
from catalog.ingest.readers.registry import FORMATS

PACKAGE = """
from catalog.core.documents import ParsedDocument
from fakes import WordEncoder

class ShoutReader:
    def read(self, handle, path, *, limits):
        yield ParsedDocument(path, handle.read().decode().upper(), "", "shout")

def make_encoder(settings):
    return WordEncoder()
"""
POINTS = """
[catalog.embeddings]
words = added_parts:make_encoder
broken = absent_module:Encoder

[catalog.readers]
shout = added_parts:ShoutReader
"""


@pytest.fixture
def added(tmp_path, monkeypatch):
    """A distribution on the path that adds one of each."""
    place = tmp_path / "site"
    about = place / "added_parts-1.0.dist-info"
    about.mkdir(parents=True)
    (place / "added_parts.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: added-parts\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(place))
    entry_points.list_added.cache_clear()
    yield
    entry_points.list_added.cache_clear()
    sys.modules.pop("added_parts", None)


def test_a_provider_of_another_package_is_had_by_its_name(added):
    assert get_encoder(EmbeddingSettings(provider="words")).encode(["bread"])[0].any()


def test_a_provider_that_no_package_adds_is_refused_with_those_there_are():
    with pytest.raises(ValidationError, match=r"'nowhere'.*fastembed, huggingface"):
        EmbeddingSettings(provider="nowhere")


def test_a_part_that_cannot_be_imported_is_an_error_that_names_its_package(added):
    with pytest.raises(ConfigError, match=r"'broken' .*added-parts"):
        get_encoder(EmbeddingSettings(provider="broken"))


@pytest.mark.slow
def test_files_of_an_extension_that_another_package_reads_are_read_by_it(added, tmp_path):
    file = tmp_path / "note.shout"
    file.write_text("bake bread")
    (document,) = read_file(file, "note.shout")
    assert (document.text, document.file_type) == ("BAKE BREAD", "shout")


@pytest.mark.slow
def test_our_own_parts_are_those_of_the_package_and_need_no_metadata():
    project = Path(__file__).parents[2] / "pyproject.toml"
    listed = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"]
    assert listed["catalog.embeddings"] == PROVIDERS
    assert tuple(PROVIDERS) == EMBEDDING_PROVIDERS
    readers = {
        entry.extensions.split()[0]: "catalog.ingest.readers."
        + ":".join(entry.reader.rsplit(".", 1))
        for entry in FORMATS
        if entry.extensions
    }
    assert listed["catalog.readers"] == readers
    code = (
        "import sys\n"
        "from catalog.core.settings import EmbeddingSettings\n"
        "from catalog.embedding import get_encoder\n"
        "from catalog.ingest.readers.registry import sniff\n"
        "get_encoder(EmbeddingSettings())\n"
        "assert sniff('a.md', b'x', b'x') == ('markdown', None)\n"
        "from catalog.core.entry_points import list_added\n"
        "assert list_added.cache_info().misses == 0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
