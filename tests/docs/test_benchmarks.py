"""What the benchmarks work out of what they measured, by hand."""

from pathlib import Path
from pydoc_data.topics import topics

import pytest

from catalog.core.settings import EmbeddingSettings
from catalog.embedding import get_model
from catalog.models import packaged

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.usefixtures("benchmarks")
def test_the_knee_is_where_more_clients_no_longer_bring_a_tenth_more_answers():
    from step import knee

    assert knee([1, 4, 16, 64], [10, 30, 32, 60]) == 4  # 32 is less than 33
    assert knee([1, 4, 16], [10, 11, 40]) == 16  # 11 is a tenth more


@pytest.mark.usefixtures("benchmarks")
def test_the_exponent_is_that_of_the_power_law_and_a_row_with_a_zero_has_none():
    from step import exponents

    sizes = [100, 400, 1600]
    found = exponents(sizes, {"root": [3, 6, 12], "linear": [1, 4, 16], "none": [0, 1, 2]})
    assert found == pytest.approx({"root": 0.5, "linear": 1.0})


@pytest.mark.usefixtures("benchmarks")
def test_the_plot_places_values_by_their_logarithms_and_has_its_caption(tmp_path):
    from plot import draw_growth

    draw_growth(tmp_path / "growth.svg", [10, 100, 1000], {"ms": [1, 10, 100]}, "a & b")
    drawn = (tmp_path / "growth.svg").read_text()
    assert "50,250 210,150 370,50" in drawn  # a straight line from edge to edge
    assert "a &amp; b" in drawn


@pytest.mark.slow
@pytest.mark.skipif(
    packaged.locate(packaged.BGE_SMALL) is None,
    reason="the packaged bge-small model is not installed (pip install '.[offline]')",
)
@pytest.mark.usefixtures("benchmarks")
def test_results_of_real_texts_and_vectors_have_contributions_of_both_legs(tmp_path):
    from given import Given, write_given
    from ours import asker, build, open_library

    names = "assert break class exceptions for function nonlocal raise return truth try with"
    texts = [" ".join(topics[name].split())[:600] for name in names.split()]
    named = [(f"doc0000{at // 10}.md", f"Section {at}\n\n{text}") for at, text in enumerate(texts)]
    questions = ["how is an exception raised?", "which values are false?"]
    real = get_model(EmbeddingSettings())
    whole = write_given(tmp_path, named, questions, real.encoder.encode, real.embed_query)
    given = whole.first(len(texts), tmp_path / "12")
    build(tmp_path / "12")
    with open_library(tmp_path / "12" / "ours", given=Given(given.folder)) as library:
        ask = asker(library)
        for question in questions:
            found = ask("hybrid", explain=True)(question).results[0]
            for leg in ("lexical", "vector"):
                assert found.chunk_id in [one.chunk_id for one in ask(leg)(question).results[:3]]
            assert {one.leg for one in found.explain.contributions} == {"lexical", "vector"}
