"""Presets give searches their designs' numbers; ``rrf`` is the plain design, to the digit."""

import pytest

from catalog.core.settings import load_settings
from catalog.core.settings.loading import find_presets
from catalog.embedding.model import EmbeddingModel
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.retrieval.parts import SearchParts
from catalog.search_v2.service import SearchServiceV2
from fakes import WordEncoder
from scripted import ScriptedReranker, ScriptedSource

TEXTS = {
    "keys.md": "Rotate the api keys every ninety days. A leaked key is revoked at once.",
    "bread.md": "Mix flour, water and yeast. Bake the bread at 230 degrees.",
    "rota.md": "The rota says who waters the keys of the piano, and who may rotate the plants.",
    "api.md": "The api answers in JSON. An api version is kept for two years.",
    "token.md": "A credential for the interface is exchanged for a new secret each quarter.",
}
QUERY = "rotate api keys"


@pytest.fixture
def service_of(tmp_path):
    """Opens a service of a preset over documents of one passage each; closes it at the end."""
    opened = []

    def make(preset, texts, **parts):
        settings = load_settings(preset=preset, overrides={"home": tmp_path / "home"}).settings
        library = Library(settings, model=EmbeddingModel(WordEncoder()))
        folder = tmp_path / "docs"
        folder.mkdir()
        for name, text in texts.items():
            (folder / name).write_text(f"{text}\n")
        Indexer(library).build(folder, "docs")
        opened.append(SearchServiceV2(library, SearchParts(library, **parts)))
        return opened[-1]

    yield make
    for service in opened:
        service.close()


def ranks(service, mode):
    """The rank of every document in one leg, which a search of that leg alone tells."""
    found = service.search(QUERY, dataset="docs", mode=mode, top_k=20)
    return {result.path: rank for rank, result in enumerate(found, start=1)}


def by_hand(*ranks_in_original_lists):
    """2 / (60 + rank) for each list, and once .05 if first in one or .02 if second or third."""
    best = min(ranks_in_original_lists)
    bonus = 0.05 if best == 1 else 0.02 if best <= 3 else 0.0
    return sum(2 / (60 + rank) for rank in ranks_in_original_lists) + bonus


def test_the_rrf_preset_scores_by_weighted_reciprocal_ranks_and_the_bonus(service_of):
    service = service_of("rrf", TEXTS)
    lexical, vector = ranks(service, "lexical"), ranks(service, "vector")
    assert (lexical["keys.md"], vector["keys.md"], len(vector)) == (1, 1, len(TEXTS))
    assert len(lexical) < len(vector)  # so some passages are in one list alone
    found = service.search(QUERY, dataset="docs", top_k=20)
    expected = {
        path: by_hand(*(leg[path] for leg in (lexical, vector) if path in leg)) for path in vector
    }
    assert {result.path: result.score for result in found} == pytest.approx(expected)
    # first in both: 2/61 + 2/61 + .05
    assert found[0].path == "keys.md"
    assert found[0].score == pytest.approx(0.1155737705)


def test_the_rrf_preset_gives_lists_of_an_expansion_weight_one_and_no_bonus(service_of):
    source = ScriptedSource("lex: api credential secret")
    service = service_of("rrf", TEXTS, expansion_source=source)
    plain = {one.path: one.score for one in service.search(QUERY, dataset="docs", top_k=20)}
    found = service.search(QUERY, dataset="docs", top_k=20, expand=True)
    gained = {one.path: one.score - plain[one.path] for one in found}
    # of "api credential secret", token.md holds two words and api.md one, twice; keys.md one, once
    assert gained["token.md"] == pytest.approx(1 / 61)
    assert sorted(gained.values(), reverse=True)[:4] == pytest.approx([1 / 61, 1 / 62, 1 / 63, 0.0])


def test_the_rrf_preset_blends_a_rerank_by_position(service_of):
    texts = {f"{count:02}.md": "walrus " * count + "sleeps " * (13 - count) for count in range(13)}
    texts.pop("00.md")
    service = service_of("rrf", texts, make_reranker=lambda: ScriptedReranker(0.0))
    fused = [one.path for one in service.search("walrus", dataset="docs", top_k=12)]
    found = service.search("walrus", dataset="docs", top_k=12, rerank=True)
    assert len(fused) == 12
    # The reranker says .5 of every passage. With n the rank before:
    #   .75 / n + .25 · .5 to 3;  .60 / n + .40 · .5 to 10;  .40 / n + .60 · .5 after
    expected = [0.875, 0.5, 0.375, 0.35, 0.32, 0.3, 0.2857142857, 0.275, 0.2666666667, 0.26]
    expected += [0.3363636364, 0.3333333333]
    scores = {one.path: one.score for one in found}
    assert [scores[path] for path in fused] == pytest.approx(expected)
    # 11th and 12th rise above the 5th: .336 and .333 to .32
    order = [fused[n - 1] for n in (1, 2, 3, 4, 11, 12, 5, 6, 7, 8, 9, 10)]
    assert [one.path for one in found] == order


@pytest.mark.parametrize(
    ("preset", "vector", "lexical", "shown"), [("vault", 15, 15, 10), ("projects", 40, 20, 15)]
)
def test_a_preset_says_how_deep_the_legs_go_and_how_many_passages_answer(
    service_of, preset, vector, lexical, shown
):
    service = service_of(preset, {f"{n}.md": f"walrus {n} " + "x " * n for n in range(30)})
    rag = service.parts.rag
    assert (rag.vector_top_k, rag.fts_top_k, rag.max_chunks_per_doc) == (vector, lexical, 3)
    assert len(service.search("walrus", dataset="docs")) == shown
    assert len(service.retrieve("walrus", dataset="docs")) == shown
    assert len(service.search("walrus", dataset="docs", top_k=2)) == 2


def test_the_book_preset_shows_all_the_best_passages_of_one_chapter(service_of):
    page = "\n\n".join(f"## Part {n}\n\n" + f"The walrus of part {n}. " * 40 for n in range(6))
    service = service_of("book", {"chapter.md": f"# Walrus\n\n{page}"})
    assert [hit.path for hit in service.search("walrus", dataset="docs")] == ["chapter.md"] * 5


def test_every_preset_is_found_by_name_and_loads():
    assert set(find_presets()) == {
        "agents",
        "book",
        "default",
        "fast",
        "multilingual",
        "projects",
        "rrf",
        "vault",
    }
    for name in find_presets():
        load_settings(preset=name)
