"""Check a command line against the commands that exist, without running it."""

from typer.main import get_command

from catalog.interfaces.cli.commands import app


def parse(words):
    """Return what the command understands of the words after ``catalog``; fail for a wrong one."""
    command, words = get_command(app), list(words)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        command, words = command.commands[words[0]], words[1:]
    with command.make_context("catalog", words) as context:
        return context.params
