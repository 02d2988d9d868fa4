"""The ``catalog`` command."""

from __future__ import annotations

import gc
import io
import sys

__all__ = ["main"]

INTERRUPTED = 130  # how typer ends a command that Ctrl-C stopped


def main() -> None:
    """Run the command line; every error of ours is one sentence on stderr and exit code 1."""
    gc.set_threshold(50_000)  # importing makes a million lasting objects: a tenth of the start
    from catalog.core.errors import CatalogError
    from catalog.interfaces.cli.app import app
    from catalog.interfaces.cli.output import complain

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a document's letters
    try:
        app()
    except CatalogError as error:
        complain(str(error))
        sys.exit(1)
    except SystemExit as ending:
        if ending.code == INTERRUPTED:
            complain("interrupted; what was stored is kept, run the same command to continue")
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
