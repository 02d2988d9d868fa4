"""Running the command line in this process."""

import sys

import pytest

from catalog.interfaces.cli import main


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs ``catalog`` with arguments: exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["catalog", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return exit_.value.code or 0, out, err

    return run


@pytest.fixture
def catalog(command):
    """The same; files whose commands need more around them have a ``catalog`` of their own."""
    return command
