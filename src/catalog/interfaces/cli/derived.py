"""``catalog index rebuild`` of what is derived from the store: the indexes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from catalog.interfaces.cli.options import open_library
from catalog.interfaces.cli.output import TerminalProgress, print_json, say

VectorsOption = Annotated[
    bool, typer.Option("--vectors", help="Only the vector indexes, from the store.")
]
LexicalOption = Annotated[
    bool,
    typer.Option(
        "--lexical", help="Only the keyword indexes, and the database's own, from the store."
    ),
]
BothOption = Annotated[bool, typer.Option("--all", help="Both kinds of indexes, from the store.")]


def rebuild_derived(
    context: typer.Context,
    home: Path | None,
    preset: str | None,
    vectors: bool,
    lexical: bool,
    json: bool,
) -> None:
    """Make indexes of every dataset anew, and print what was made."""
    from catalog.library.indexing import rebuild_indexes

    with open_library(context, home, preset) as library, TerminalProgress() as progress:
        done = rebuild_indexes(library, vectors=vectors, lexical=lexical, progress=progress)
    if json:
        print_json(done)
        return
    for name, made in done.items():
        points = f"vector index of {made['vectors']:,} points" if "vectors" in made else ""
        words = "keyword index" if "lexical" in made else ""
        say(f"{name}: {' and '.join(filter(None, (words, points)))} made anew")
