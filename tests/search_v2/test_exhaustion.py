"""When a search has seen everything its legs can find, so that going deeper finds no more."""

import pytest

from catalog.core.query import parse_query
from catalog.library.indexing import Indexer
from catalog.retrieval.legs import Question, plan_legs
from catalog.retrieval.parts import StageLog
from catalog.retrieval.search import find
from catalog.search_v2.service import SearchServiceV2
from catalog.store.restriction import Restriction
from fakes import open_library, write

FILES = {f"{name}.md": f"# {name}\n\nTea with {name}.\n" for name in ("honey", "lemon", "milk")}


@pytest.fixture
def is_exhausted(tmp_path):
    """Search three documents that all match, and tell whether the legs were exhausted."""
    folder = tmp_path / "tea"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    with open_library(tmp_path / "home", vector_engine="flat") as library:
        Indexer(library).build(folder, "tea")

        parts = SearchServiceV2(library).parts

        def search(mode, *, lexical=10, vector=10, fused=10):
            query, within = parse_query("tea", max_chars=100), Restriction("tea")
            legs = plan_legs(within, query.parts, mode, k_lex=lexical, k_dense=vector)
            return find(parts, legs, Question("tea"), fused, StageLog()).is_exhausted

        yield search


@pytest.mark.parametrize("leg", ["lexical", "vector"])
def test_a_leg_that_gives_fewer_hits_than_it_may_is_exhausted(is_exhausted, leg):
    assert is_exhausted(leg, **{leg: 4})


@pytest.mark.parametrize("leg", ["lexical", "vector"])
def test_a_leg_that_gives_all_the_hits_it_may_could_have_more(is_exhausted, leg):
    assert not is_exhausted(leg, **{leg: 3})


def test_both_legs_must_be_exhausted(is_exhausted):
    assert is_exhausted("hybrid", lexical=4, vector=4)
    assert not is_exhausted("hybrid", lexical=3, vector=4)
    assert not is_exhausted("hybrid", lexical=4, vector=3)


def test_candidates_cut_after_fusion_are_not_exhausted(is_exhausted):
    assert is_exhausted("hybrid", fused=3)
    assert not is_exhausted("hybrid", fused=2)


@pytest.mark.parametrize(("text", "is_deeper"), [("Tea 7.", False), ("Coffee.", True)])
def test_legs_go_no_deeper_than_documents_can_fill_the_answer(tmp_path, text, is_deeper):
    long = "".join(f"# Tea {number}\n\nTea {number}.\n\n" for number in range(300))
    write(tmp_path / "tea", long_dot_md=long, short_dot_md=text)
    with open_library(tmp_path / "home", chunk_size=20, chunk_overlap=0) as library:
        Indexer(library).build(tmp_path / "tea", "tea")
        results = SearchServiceV2(library).search("tea 7", top_k=20)
    (select,) = (stage for stage in results.stages if stage.name == "select")
    assert len(results) == 8  # one in 20 of the long document, and one
    assert ("times deeper" in select.note) == is_deeper
