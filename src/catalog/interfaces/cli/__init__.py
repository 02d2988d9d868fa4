"""The ``catalog`` command."""

from __future__ import annotations

import atexit
import gc
import os
import sys

__all__ = ["main"]

INTERRUPTED = 130  # how typer ends a command that Ctrl-C stopped


def main() -> None:
    """Run the command line; every error of this package is a sentence on stderr and exit code 1.

    Ctrl-C ends it with code 130 and a sentence.
    """
    gc.set_threshold(200_000)  # a search makes half as many objects, and most of them last
    atexit.register(gc.freeze)  # else the end of the process looks through all of them
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it reads all packages for them
    try:
        _run()
    except SystemExit:
        raise
    except BaseException as error:
        if not _comes_of_interrupt(error):
            raise
        sys.stderr.write("catalog: interrupted\n")
        sys.exit(INTERRUPTED)


def _comes_of_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C led to the error.

    Ctrl-C while a module is imported may come out as another error: Python 3.11 makes a
    RuntimeError of what ``__set_name__`` raises, and packages make an ImportError of anything.
    """
    if error is None or isinstance(error, KeyboardInterrupt):
        return error is not None
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return any(map(_comes_of_interrupt, {error.__cause__, error.__context__, *inner}))


def _run() -> None:
    from catalog.core.errors import CatalogError
    from catalog.interfaces.cli.output import complain, flush_streams, prepare_streams, refuse

    prepare_streams()
    try:
        try:
            from catalog.interfaces.cli.commands import app

            app()
        except SystemExit as ending:
            if ending.code == INTERRUPTED:
                complain("interrupted")
            flush_streams()
            raise
        except BrokenPipeError:
            raise
        except (OSError, ExceptionGroup) as error:  # a group: of a server's tasks
            flush_streams()  # says so if it was standard output
            refuse(error)
            raise
    except CatalogError as error:
        if _comes_of_interrupt(error):
            raise
        complain(str(error))
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
