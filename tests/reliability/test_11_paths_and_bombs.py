"""No name that anybody asks for leads out of the store; what files hold is in tests/ingest."""

import pytest

from catalog.core.errors import InputError
from catalog.interfaces.agents import AGENT_TOOLS
from catalog.interfaces.engine import LocalEngine
from catalog.library.indexing import Indexer
from fakes import open_library, write

SECRET = "zqoutside"


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paths")
    write(folder, outside_dot_txt=SECRET, notes__a_dot_md="# Kettle\n\nThe kettle.\n")
    (folder / "notes" / "link.txt").symlink_to(folder / "outside.txt")
    (folder / "notes" / "loop").symlink_to(folder / "notes")
    with LocalEngine(open_library(folder / "home")) as engine:
        Indexer(engine.library).build(folder / "notes", "notes")
        yield engine


@pytest.mark.parametrize(
    "name",
    [
        "../outside.txt",
        "notes:../outside.txt",
        "/etc/passwd",
        "link.txt",
        "loop/loop/a.md",
        "//server/share/a.md",
        "\\\\server\\share\\a.md",
        "C:\\a.md",
        "file:///etc/passwd",
        "/dev/zero",
        "a.md\x00.txt",
        "%2e%2e/outside.txt",
        "$(cat outside.txt)",
        "`id`; ls |",
        "~/a.md",
        "a/" * 3_000,
        "x" * 100_000,
        ".",
        "..",
    ],
    ids=lambda name: repr(name[:24]),
)
def test_a_name_is_looked_up_among_documents_and_never_opened(engine, name):
    for verb, arguments in (
        ("get", {"reference": name}),
        ("multi_get", {"patterns": [name]}),
        ("search", {"query": "kettle", "docs": [name]}),
    ):
        with pytest.raises(InputError) as raised:
            engine.ask(verb, arguments)
        assert SECRET not in str(raised.value)
    for tool, argument in (("get", "reference"), ("multi_get", "pattern")):
        answer = AGENT_TOOLS[tool].call(engine, {argument: name})
        assert answer.is_error
        assert SECRET not in answer.text
        assert len(answer.text) < 2_000


def test_what_is_linked_from_outside_was_not_indexed(engine):
    assert [entry["path"] for entry in engine.ask("browse", {})["entries"]] == ["a.md"]
