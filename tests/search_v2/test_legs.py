"""The legs as LlamaIndex users see them: retrievers over a store that may change meanwhile."""

import pytest

from catalog.core.errors import EngineError
from catalog.core.query import SubQuery
from catalog.library.indexing import Indexer
from catalog.retrieval.legs import LegQuery, Question, ranking
from catalog.retrieval.parts import SearchParts
from catalog.search_v2.service import SearchServiceV2
from catalog.store.lexical.bm25 import Bm25Engine
from catalog.store.restriction import Restriction
from catalog.store.vectors.flat import draw_passages
from fakes import WordEncoder, open_library, write
from passages_by_language import BY_LANGUAGE


def test_a_leg_that_breaks_records_it_in_its_run(tmp_path, notes, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("inside")

    with open_library(tmp_path / "home", WordEncoder()) as library:
        Indexer(library).build(notes, "notes")
        monkeypatch.setattr(Bm25Engine, "search", broken)
        leg = LegQuery(SubQuery("lex", "flour"), Restriction("notes"), 10)
        with ranking(SearchParts(library), [leg], Question("flour")) as (_, [run]):
            assert (run.leg, list(run.hits)) == ("lexical", [])
    assert isinstance(run.error, EngineError)
    assert str(run.error) == "ZeroDivisionError: inside"


@pytest.mark.parametrize("engine", ["bm25", "fts"])
def test_words_weigh_more_where_the_model_does_not_know_the_language(tmp_path, engine):
    encoder = WordEncoder()
    encoder.model = "BAAI/bge-small-en-v1.5"  # which knows English
    settings = {"vector_engine": "flat", "lexical_engine": engine}
    with open_library(tmp_path / "home", encoder, **settings) as library:
        for name, language in (("deutsch", "german"), ("english", "english")):
            folder = tmp_path / name
            write(folder, **{f"p{n}_dot_md": text for n, text in enumerate(BY_LANGUAGE[language])})
            Indexer(library).build(folder, name)
        service = SearchServiceV2(library)
        shares = {}
        for name in ("deutsch", "english"):
            results = service.search("Haus garden", dataset=name, explain=True)
            shares[name] = service.parts.balance(name).shift
            note = next(stage.note for stage in results.stages if stage.name == "fuse")
            assert ("does not know the language of 100%" in note) == (name == "deutsch")
        assert shares == {"deutsch": -0.35, "english": 0.0}
        both = service.parts.balance(("deutsch", "english")).shift
        assert -0.35 < both < 0


@pytest.fixture
def animals(tmp_path):
    folder = tmp_path / "animals"
    write(
        folder, cat_dot_md="A cat sleeps on the warm roof.", dog_dot_md="A dog barks at the roof."
    )
    with open_library(tmp_path / "home", WordEncoder(), vector_engine="flat") as library:
        Indexer(library).build(folder, "animals")
        yield SearchServiceV2(library)


def weights_of(results):
    parts = results[0].explain.contributions
    return {part.leg: part.weight for part in parts}


def test_the_less_of_a_query_the_best_keyword_hit_has_the_less_words_weigh(animals):
    # all four words: .35; one in four, of the .8 that are enough: .35 * (.25 / .8) ** 2
    whole = animals.search("cat sleeping on warm roofs", explain=True)
    little = animals.search("roof swims through rivers", explain=True)
    assert weights_of(whole)["lexical"] == pytest.approx(2 * 0.35)
    assert weights_of(little)["lexical"] == pytest.approx(2 * 0.35 * 0.3125**2)
    assert weights_of(little)["vector"] == pytest.approx(2 * (1 - 0.35 * 0.3125**2))
    notes = [found.stages[2].note for found in (whole, little)]
    assert notes == [
        "bm25: 2 hits; passages with its rarest word: 1",
        "bm25: 2 hits; the first has 25% of the words",
    ]
    # "cat" is in one passage alone: .8 of the words, which is enough
    rare = animals.search("cat swims through rivers", explain=True)
    assert weights_of(rare)["lexical"] == pytest.approx(2 * 0.35)


def test_a_damaged_passage_is_left_out_where_passages_tell_the_languages(tmp_path):
    encoder = WordEncoder()
    encoder.model = "BAAI/bge-small-en-v1.5"
    settings = {"vector_engine": "flat", "lexical_engine": "fts"}
    with open_library(tmp_path / "home", encoder, **settings) as library:
        folder = tmp_path / "deutsch"
        write(folder, **{f"p{n}_dot_md": text for n, text in enumerate(BY_LANGUAGE["german"])})
        Indexer(library).build(folder, "deutsch")
        with library.database.write() as connection:
            of_chunks = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            for name in connection.exec_driver_sql(of_chunks).scalars().all():
                connection.exec_driver_sql(f"DROP TRIGGER {name}")
            damage = "UPDATE chunks SET text = x'ff41fe' WHERE seq = (SELECT min(seq) FROM chunks)"
            connection.exec_driver_sql(damage)
        service = SearchServiceV2(library)
        results = service.search("Haus garden", dataset="deutsch")
        assert "100%" in next(stage.note for stage in results.stages if stage.name == "fuse")


def test_passages_are_drawn_from_several_datasets_as_from_one(tmp_path):
    with open_library(tmp_path / "home", WordEncoder(), vector_engine="flat") as library:
        for name, size in (("few", 3), ("many", 30)):
            folder = tmp_path / name
            write(folder, **{f"p{n}_dot_md": f"passage {n} of {name}" for n in range(size)})
            Indexer(library).build(folder, name)
        with library.database.read() as connection:
            both, many = (draw_passages(connection, of, 33) for of in (("few", "many"), "many"))
            assert (len(both), len(many), len(set(both) - set(many))) == (33, 30, 3)
            assert draw_passages(connection, ("few", "many"), 11) == both[:11]  # none has a quota
