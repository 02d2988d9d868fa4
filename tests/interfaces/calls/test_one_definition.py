"""A parameter is defined once: every edge takes it, with its default, its bounds and its help."""

import json
import subprocess
import sys
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

import pytest
import typer
from typer.testing import CliRunner

from catalog.core.arguments import params_model, read_params
from catalog.core.errors import InputError
from catalog.core.params import Params, about, edge_fields, optional
from catalog.interfaces.calls import VERBS, Verb
from catalog.interfaces.cli import verbs


@dataclass(frozen=True)
class PaintParams(Params):
    """A verb that exists in this test only."""

    text: str = field(metadata=about("What to paint."))
    _: KW_ONLY
    colours: list[str] | None = optional(
        None, "Only these colours.", flags="--colour -c", json_help="[] is none."
    )
    shade: Literal["light", "dark"] = optional("light", "light or dark.")
    coats: int = optional(4, "How many coats.", (1, 9))
    first_wall: int = optional(0, "How many walls to pass over.", (0, None))
    glossy: bool | None = optional(None, "Let it shine.")
    quick: bool = optional(False, "Do not wait for it to dry.")
    brush: object = optional(None, "A brush of your own.", python_only=True)


NAMES = ["text", "colours", "shade", "coats", "first_wall", "glossy", "quick"]


class FakeLibrary:
    def close(self):
        pass


@pytest.fixture
def paint(monkeypatch):
    """Run the command that the params make; ``--json`` prints the arguments that arrived."""
    verb = Verb("paint", PaintParams, lambda engine, params: dict(vars(params)))
    monkeypatch.setitem(VERBS, "paint", verb)
    monkeypatch.setattr(verbs.options, "open_library", lambda *_: FakeLibrary())
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(
        verbs.verb_command("paint", PaintParams, "Paint some walls.", "catalog paint red")
    )

    def run(*arguments):
        return CliRunner().invoke(app, arguments, env={"COLUMNS": "96"})

    return run


def test_the_command_line_takes_each_parameter(paint):
    done = paint(
        *("sky", "--colour", "blue", "-c", "white", "--shade", "dark", "--coats", "2"),
        *("--first-wall", "1", "--no-glossy", "--quick", "--json"),
    )
    assert json.loads(done.stdout) == {
        "text": "sky", "colours": ["blue", "white"], "shade": "dark", "coats": 2, "first_wall": 1,
        "glossy": False, "quick": True, "brush": None,
    }  # fmt: skip


def test_the_command_lines_defaults_are_those_of_python(paint):
    assert json.loads(paint("sky", "--json").stdout) == vars(PaintParams("sky"))


def test_the_commands_help_says_what_each_parameter_means(paint):
    text = paint("--help").stdout
    for expected in (
        "Paint some walls.", "What to paint.", "-c, --colour",
        "Only these colours; may be repeated.", "[default: light]", "[default: 4; ",
        "--glossy / --no-glossy", "Let it shine.",
    ):  # fmt: skip
        assert expected in text
    assert "brush" not in text


def test_json_takes_each_parameter_with_its_bounds_and_help():
    schema = params_model(PaintParams).model_json_schema()
    assert list(schema["properties"]) == NAMES
    assert schema["required"] == ["text"]
    assert schema["additionalProperties"] is False
    coats = schema["properties"]["coats"]
    assert (coats["default"], coats["minimum"], coats["maximum"]) == (4, 1, 9)
    assert coats["description"] == "How many coats."
    assert schema["properties"]["colours"]["description"] == "Only these colours. [] is none."
    assert read_params(PaintParams, {"text": "sky", "coats": 2}, "paint") == PaintParams(
        "sky", coats=2
    )
    with pytest.raises(InputError, match="'brush'"):
        read_params(PaintParams, {"text": "sky", "brush": 1}, "paint")


def test_every_parameter_of_every_verb_has_help_and_is_taken_by_name_but_the_first():
    for verb in VERBS.values():
        parameters = edge_fields(verb.params)
        assert all(field.help for field in parameters)
        assert not any(field.is_positional for field in parameters[1:])


def test_the_definitions_and_the_commands_made_of_them_load_nothing_heavy():
    script = (
        "import sys, catalog.core.params, catalog.interfaces.cli.verbs\n"
        "print([m for m in ('pydantic', 'sqlalchemy', 'llama_index') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
