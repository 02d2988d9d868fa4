"""Any text is a query or a clear error, whoever is asked; engines hold to it in their contract."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import InputError
from catalog.interfaces.calls import LocalEngine
from catalog.library.indexing import Indexer
from fakes import open_library, write
from reliability.chaos import check

SIGNS = "*():^+{}[]|&~<>=!?%_;,./\\'@#$`\x00\x1b\u200b\u202e\ufe0f\U000e0041"
PIECES = st.sampled_from((*SIGNS, "NEAR(", "title:", "rowid", "col :", "--", "/*", "%s", " ", "\n"))
WORDS = ("kettle", "harbour", "ledger")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    write(
        folder / "notes",
        a_dot_md="# Kettle\n\nThe kettle of the harbour.\n",
        b_dot_md="# Ledger\n\nA ledger, kettles and harbours.\n",
        c_dot_md="# Otter\n\nNothing but an otter.\n",
    )
    with LocalEngine(open_library(folder / "home")) as engine:
        Indexer(engine.library).build(folder / "notes", "notes")
        yield engine


@pytest.mark.slow
def test_no_text_raises_anything_but_an_input_error_whoever_is_asked(engine):
    texts = st.one_of(
        st.text(max_size=80),
        st.text(alphabet=st.characters(categories=("Cs", "Cf", "Mn", "Zs", "Co")), max_size=40),
        st.lists(st.one_of(PIECES, st.sampled_from((*WORDS, '"', "-", "lex:", "vec:")))).map(
            "".join
        ),
    )

    @given(texts, st.sampled_from(("hybrid", "lexical", "vector")))
    def holds(text, mode):
        for verb, arguments in (
            ("search", {"query": text, "mode": mode, "strict": True}),
            ("search", {"query": "kettle", "name": text, "mode": mode}),
            ("browse", {"query": text, "tags": [text]}),
            ("get", {"reference": text}),
            ("multi_get", {"patterns": [text]}),
        ):
            with suppress(InputError):  # any other error comes out
                assert isinstance(engine.ask(verb, arguments), dict), (verb, text)

    check(holds, examples=40)
