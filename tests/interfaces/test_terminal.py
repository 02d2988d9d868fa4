"""What commands print that needs no model: the help and the store's status."""

import pytest
from typer.testing import CliRunner

from catalog.interfaces.cli.commands import app
from catalog.interfaces.terminal import Form, render


def status_line(**changed):
    dataset = {
        "dataset": "notes", "documents": 1, "chunks": 1, "embedded": 1, "languages": {}, "root": "",
        "preset": None, "settings": {},
    }  # fmt: skip
    (line,) = render("status", {"datasets": [dataset | changed]}, Form()).out.splitlines()
    return line


@pytest.mark.parametrize("command", ["search", "browse"])
def test_n_is_another_name_of_the_count(command):
    result = CliRunner().invoke(app, [command, "--help"], terminal_width=80)
    assert "-n" in result.stdout.split("--dataset")[1]


def test_the_status_counts_one_as_one_and_tells_a_pipeline():
    told = "notes: 1 document, 1 passage, all embedded, made by a pipeline"
    assert status_line() == f"dataset          {told}"
    assert "2,000 documents, " in status_line(documents=2000)
    assert status_line(root="/docs").endswith(
        "from /docs, made with settings its next update will note"
    )
