"""The command's own refusals; its server is tested beside this."""

import pytest
import typer

from catalog.core.errors import ConfigError
from catalog.interfaces.cli.serve import mcp


def run(*arguments):
    app = typer.Typer()
    app.command()(mcp)
    app(list(arguments), standalone_mode=False)


@pytest.mark.parametrize("address", ["nonsense", ":8181", "127.0.0.1", "127.0.0.1:99999"])
def test_an_invalid_address_is_refused(address):
    with pytest.raises(ConfigError, match="is not an address"):
        run("--http", address)


def test_an_address_that_other_machines_can_reach_is_refused_without_a_token():
    with pytest.raises(ConfigError, match="IDX_SERVE__TOKEN"):
        run("--http", "0.0.0.0:0")
