"""Whatever a document holds, a request for it takes little CPU."""

from contextlib import ExitStack, suppress
from functools import cache

import pytest

from catalog.core.errors import QueryError
from catalog.core.settings.loading import load_preset
from catalog.interfaces.calls import LocalEngine
from catalog.library.indexing import Indexer
from fakes import open_library, write
from growth import assert_linear
from hostile.texts import clock, srt

pytestmark = pytest.mark.slow
MANY = 1_500
SAME, ALL = (clock(1), clock(2)), (clock(0), clock(90_000))
CORPORA = {
    "same.srt": lambda size: srt([(*SAME, f"backup restore {at}") for at in range(size)]),
    "long.srt": lambda size: srt([(*ALL, f"backup restore {at}") for at in range(size)]),
    "speakers.srt": lambda size: srt([(*ALL, f"Anna {at}: backup restore") for at in range(size)]),
    "tiny.srt": lambda size: srt([(*ALL, "a")] * size + [(*ALL, "backup restore")]),
    "frames.md": lambda size: "# Talk\n\n" + "## Frame at 00:00:01\n\nbackup restore\n\n" * size,
    "headings.md": lambda size: "# backup restore\n" * 2 * size,
    "blanks.txt": lambda size: (
        "The backup report\n" + " " * 70 * size + "backup restore takes a day\n"
    ),
    "word.txt": lambda size: "backup restore " + "a" * 70 * size,
    "fields.eml": lambda size: "X-Backup: restore\n" * 2 * size,
    "quotes.eml": lambda size: "Subject: backup\n\n" + "> backup restore\nyes\n" * size,
    "mails.mbox": lambda size: (
        "From x Fri May 31 10:15:00 2024\nSubject: backup restore\n\nyes\n\n" * size
    ),
    "cells.csv": lambda size: "backup restore," + "x," * 20 * size,
    "records.jsonl": lambda size: "".join(
        f'{{"_id": "{at}", "title": "backup", "text": "restore"}}\n' for at in range(size // 3)
    ),
    "deep.html": lambda size: "<div>" * 20 * size + "backup restore",
    "deep.json": lambda size: '{"backup": "restore", "x": ' + "[" * 20 * size,
}


@pytest.mark.parametrize("name", CORPORA)
def test_a_request_takes_time_linear_in_the_length_of_a_hostile_document(tmp_path, name):
    with ExitStack() as stack:

        @cache
        def indexed(size):
            folder = tmp_path / str(size)
            folder.mkdir()
            content = CORPORA[name](size)
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
            settings = load_preset("vault")["rag_v2"]
            engine = stack.enter_context(
                LocalEngine(open_library(tmp_path / f"{size}.home", **settings))
            )
            Indexer(engine.library).build(folder, "notes")
            engine.answer("search", {"query": "nothing"})  # loads what every search needs
            return engine

        for verb, arguments in (
            ("search", {"query": "backup restore", "mode": "lexical"}),
            ("search", {"query": "backup restore"}),
            ("search", {"query": "backup restore", "top_k": 1000}),
            (
                "generate",
                {"kind": "workflow", "topic": "backup restore", "model": "scripted:write"},
            ),
            ("ask", {"question": "How long does the backup restore take?"}),
        ):

            def ask(engine, verb=verb, arguments=arguments):
                engine.answer(verb, arguments)

            assert_linear(ask, MANY, given=indexed)


UNITS = ["k", "kx ", "a.b.", "a-", '"a" ', "-a ", "a_b", "1,", "\u0301", "中", "::1 ", "lex: a\n"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("queries")
    write(folder / "notes", keys_dot_md="# Keys\n\nRotate a-b keys.", tea_dot_md="Tea: 1,5 l")
    with LocalEngine(open_library(folder / "home")) as engine:
        Indexer(engine.library).build(folder / "notes", "notes")
        engine.answer("search", {"query": "nothing"})
        yield engine


@pytest.mark.parametrize("unit", UNITS)
def test_a_hostile_query_is_answered_in_linear_time(engine, unit):
    for verb, asked, arguments in (
        ("search", "query", {"mode": "lexical"}),
        ("search", "query", {"explain": True}),
        ("ask", "question", {}),
    ):
        for size in (2_000, 10_000):  # as long as is read, and longer

            def ask(query, verb=verb, asked=asked, arguments=arguments):
                with suppress(QueryError):
                    engine.answer(verb, {asked: query, **arguments})

            assert_linear(ask, size, given=lambda size: (unit * size)[:size])
