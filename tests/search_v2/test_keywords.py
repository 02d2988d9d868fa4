"""Words that decide: names, rare words, and queries of one or two keywords."""

import pytest

from builders import make_database, put
from catalog.core.scope import Scope
from catalog.retrieval.fusion import OTHER_JOINTS, FoundWords, RankedList, rrf
from catalog.retrieval.query_words import find_words, how_written, keywords_of, looks_like_name
from catalog.retrieval.select import prefer_words
from catalog.retrieval.snippets import Passage
from catalog.store.chunks import load_chunks
from catalog.store.lexical.bm25 import Bm25Engine, WordIndex
from catalog.store.lexical.fts import FtsEngine
from catalog.store.restriction import Restriction
from growth import assert_linear
from made_results import stored
from stores import service_of
from tables import read_cases, table

WHOLE = Restriction("notes")


def chunk(text, name="c1", title="", headings=()):
    return stored(text, name, title=title, heading_path=headings)


@table("word")
def test_a_word_with_digits_capitals_or_signs_within_looks_like_a_name(word):
    assert looks_like_name(word)
    for ordinary in ("keys", "Keys", "well-known", "2024", "1,000", "I", "Éclair", ""):
        assert not looks_like_name(ordinary)
    assert_linear(lambda size: looks_like_name("a" * size), 100_000)


@table("query, keywords")
def test_a_query_of_one_or_two_words_without_a_stop_word_has_keywords(query, keywords):
    assert keywords_of(query) == keywords


@table("words, text, is_written")
def test_words_as_they_are_written(words, text, is_written):
    for one in (chunk(text), chunk("-", title=text), chunk("-", headings=(text,))):
        assert (how_written(one, words) == 1) is is_written


@table("words, text, is_joined")
def test_a_name_with_other_joints_is_that_name(words, text, is_joined):
    assert how_written(chunk(text), words) == (OTHER_JOINTS if is_joined else 0)


@pytest.fixture(scope="module", params=["bm25", "fts"])
def found_words(request, tmp_path_factory):
    """Tell what is found of a query's words in a hundred passages."""
    tmp_path = tmp_path_factory.mktemp("words")
    database = make_database(tmp_path)
    texts = {f"p{n}.md": f"Common words on page {n + 1000}." for n in range(100)}
    texts["p7.md"] = "Common words about a zebra."
    texts["p8.md"] = "Common words about maxRetries."
    texts["p9.md"] = "Common words about maxRetries, too."
    seqs = [seq for path, text in texts.items() for seq in put(database, "notes", path, text)]
    with database.read() as connection:
        stored = load_chunks(connection, "notes", seqs, damaged=[]).values()
    paths = {one.seq: one.path for one in stored}
    makers = {
        "bm25": lambda: Bm25Engine(WordIndex(database, "notes", tmp_path / "index")),
        "fts": lambda: FtsEngine(database, "notes"),
    }
    engine = makers[request.param]()

    def run(text, within=WHOLE):
        hits = engine.search(text, 10, within)
        with database.read() as connection:
            of_hits = [hit.seq for hit in hits]
            found = find_words(connection, engine, within, text, hits, of_hits)
        return found, {paths[name] for name in found.rare}

    yield run
    database.close()


def test_a_passage_that_repeats_a_pasted_query_under_a_title_does_not_set_its_cover():
    pasted = " ".join(f"word{n}" for n in range(40))
    near = " ".join([*(f"word{n}" for n in range(9)), *(f"other{n}" for n in range(40))])
    files = {"notes/copy.md": f"A title\n\n{pasted}\n", "notes/near.md": near}
    files["notes/b.md"] = " ".join(f"word{n}" for n in range(10, 30, 2))
    results = service_of(files).search(pasted, dataset="notes")
    assert results[0].path == "copy.md"
    (note,) = (stage.note for stage in results.stages if stage.name == "lexical")
    # b.md: 10 of 40 words; 9 and these are in two passages of three, the others in one
    assert "the first has 16% of the words" in note
    assert "rarest word" not in note


def test_the_rarest_word_and_the_passages_with_it_are_found(found_words):
    found, paths = found_words("common words about the zebra in quaggas")
    # zebra is in one passage of 100, which also has common, words and about: 4 of the 5 words
    assert (found.rarity, found.is_name, paths) == (1.0, False, {"p7.md"})
    assert found.cover == pytest.approx(0.8)
    assert set(found.weights) == {"common", "words", "about", "zebra"}
    assert found.weights["zebra"] > found.weights["about"] > found.weights["words"]
    for text in ("common words", "quagga", "the of"):
        found, paths = found_words(text)
        assert (found.rarity, paths) == (0.0, set())
    within = Restriction("notes", Scope.of(["notes:p8.md"]))
    assert found_words("common zebra", within)[1] == set()


def test_a_name_counts_for_more_than_a_rarer_word(found_words):
    # idf(2) / idf(1) = ln(101 / 2.5) / ln(101 / 1.5) = .8786, so that the rarity is .3932;
    # the zebra is rarer, and no name
    for query in ("zebra maxRetries", "common maxRetries"):
        found, paths = found_words(query)
        assert found.is_name
        assert found.rarity == pytest.approx(0.3932, abs=5e-4)
        assert paths == {"p8.md", "p9.md"}


def passages(texts, lexical=(), vector=(), weight=2.0, bonus=0.0):
    """Fused passages as they come, by ``1 / rank`` of each list times its weight."""
    lists = [
        RankedList("lexical", "bm25", "q", "original", weight, tuple(lexical), words=FoundWords()),
        RankedList("vector", "exact", "q", "original", weight, tuple(vector)),
    ]
    fused = rrf(lists, k=0, bonus_first=bonus, bonus_second=0.0)
    return [
        Passage(chunk(texts[one.key], one.key), one.score, one, frozenset({"lex", "vec"}))
        for one in fused
    ]


def told(preferred):
    return [(one.chunk.chunk_id, pytest.approx(one.score)) for one in preferred]


def test_keywords_prefer_passages_that_contain_them_and_more_so_as_written():
    texts = {"a": "Nothing of it.", "b": "Rotating a key.", "c": "Rotate keys."}
    found = passages(
        texts, lexical=[("b", 3.0), ("c", 2.0)], vector=[("a", 0.9), ("b", 0.8), ("c", 0.7)]
    )
    # b 2 + 1, a 2, c 1 + 2/3; all words: +3, as written: +3 more, each times 2
    assert told(found) == [("b", 3.0), ("a", 2.0), ("c", 1 + 2 / 3)]
    preferred = prefer_words(found, "rotate keys", 2.0)
    assert told(preferred) == [("c", 13 + 2 / 3), ("b", 9.0), ("a", 2.0)]
    assert [one.fused.bonus for one in preferred] == [12.0, 6.0, 0.0]
    assert told(prefer_words(found, "rotate keys", 0.5))[0] == ("c", 4 + 2 / 3)


def test_a_query_in_quotes_prefers_passages_that_have_it_as_written():
    texts = {"a": "Names are defined here.", "b": "Of names defined here.", "c": "Nothing."}
    found = passages(texts, [("a", 3.0), ("b", 2.0)], [("a", 0.9), ("c", 0.8), ("b", 0.7)])
    asked = prefer_words(found, "names defined", 1.0, phrases=("names defined",))
    assert [one.chunk.chunk_id for one in asked] == ["b", "a", "c"]


def test_a_name_with_other_joints_comes_before_its_parts_and_after_the_name_as_written():
    texts = {"a": "XK, or 320.", "b": "The XK-320.", "c": "The XK320."}
    found = passages(texts, [("a", 3.0), ("b", 2.0), ("c", 1.0)], [("a", 0.9)])
    asked = prefer_words(found, "XK320", 1.0)
    assert [(one.chunk.chunk_id, one.fused.bonus) for one in asked] == [
        ("c", 6.0),
        ("b", 5.0),
        ("a", 0.0),
    ]


def test_longer_queries_and_passages_with_one_of_the_keywords_change_nothing():
    texts = {"a": "Nothing of it.", "b": "Rotate all the keys.", "c": "Keys."}
    found = passages(texts, [("b", 3.0), ("c", 2.0)], [("a", 0.9), ("b", 0.8), ("c", 0.7)])
    for query in ("rotate the keys", "please rotate old keys", "rotate lamps"):
        assert list(prefer_words(found, query, 1.0)) == found


def test_a_score_stays_the_sum_of_its_parts_to_the_digit():
    texts = {f"c{n}": "keys" if n % 2 else "ключи" for n in range(20)}
    lexical = [(name, 0.1 * n) for n, name in enumerate(texts) if n % 4 == 1]
    vector = [(name, 0.1 * n) for n, name in enumerate(texts)]
    found = passages(texts, lexical, vector, weight=0.7, bonus=0.05)
    preferred = prefer_words(found, "keys", 1.3, ["english"])
    assert {one.chunk.chunk_id for one in preferred} == texts.keys()
    for passage in preferred:
        hit = passage.fused
        assert passage.score == hit.score
        assert hit.score == sum(part.contribution for part in hit.contributions) + hit.bonus
    scores = [one.score for one in preferred]
    assert scores == sorted(scores, reverse=True)


def test_passages_in_a_script_that_neither_model_nor_query_uses_lose_half_of_their_score():
    texts = {
        "a": "Ключи меняют каждый месяц.",
        "b": "Rotate all keys.",
        "c": "鍵を毎月交換します。",
    }
    found = passages(texts, vector=[("a", 0.9), ("c", 0.8), ("b", 0.7)])
    question = "how often are keys rotated"
    assert told(prefer_words(found, question, 1.0)) == [("a", 2.0), ("c", 1.0), ("b", 2 / 3)]
    ranked = prefer_words(found, question, 1.0, ["english"])
    assert told(ranked) == [("a", 1.0), ("b", 2 / 3), ("c", 0.5)]
    # a model that knows Russian, and a question in Russian
    assert told(prefer_words(found, question, 1.0, ["english", "russian"]))[0] == ("a", 2.0)
    assert told(prefer_words(found, "как часто меняют ключи", 1.0, ["english"]))[0] == ("a", 2.0)
    # one that the words found
    found = passages({"a": "Программа maxRetries здесь."}, [("a", 3.0)], [("a", 0.9)])
    assert list(prefer_words(found, "what does maxRetries do", 1.0, ["english"])) == found


PAGES = dict(read_cases(__file__)["pages"])


@pytest.fixture
def nine():
    return service_of({f"docs/{name}.md": f"{text}\n" for name, text in PAGES.items()})


@pytest.mark.parametrize(
    ("query", "page"),
    [("violin", "music"), ("maxRetries", "retries"), ("night train", "travel"), ("IT", "office")],
)
@table("engine")
def test_the_one_file_with_the_words_of_a_query_is_first_and_exact(nine, query, page, engine):
    results = nine.with_settings({"lexical_engine": engine}).search(query)
    assert (results[0].path, results[0].certainty) == (f"{page}.md", "exact")
    assert {one.certainty for one in results[1:]} <= {"possible"}
    assert results.low_confidence is False
    unknown = nine.search("quagga")
    assert unknown.low_confidence is True
    assert {one.certainty for one in unknown} <= {"possible"}


def test_the_bonus_of_words_is_reported_and_part_of_the_score(nine):
    first = nine.search("violin", explain=True)[0].explain
    # times the weight 2: half of the rarity 1, for it is no name, and 3 + 3 for the word as written
    assert first.bonus == pytest.approx(2 * 0.5 + 2 * 6)
    assert first.score == sum(part.contribution for part in first.contributions) + first.bonus


NAMED = {
    "notes/plans/zeta-report.md": "# Forecast\n\nThe numbers of April.\n",
    "notes/other.md": "The report of spring, and a report of summer.\n",
    "notes/tools.md": "A kitchen scale weighs flour.\n",
} | {f"notes/kitchen/{name}.md": f"How to cook {name}.\n" for name in ("rice", "kale", "peas")}


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
@table("query, path")
def test_the_name_of_a_file_finds_it_first(query, path, mode):
    assert service_of(NAMED).search(query, dataset="notes", mode=mode)[0].path == path


FRAME = 'File "/srv/module_{0}.py", in step_{0}\n  return handler_{0}()\n'
LOG = "03:{0}:11 INFO the worker {0} started a job and finished it in {0} s\n"


@pytest.mark.parametrize(("line", "mode"), [(FRAME, "hybrid"), (LOG, "lexical")])
@pytest.mark.parametrize("lines", [5, 25, 100])
def test_the_one_rare_name_of_a_pasted_text_decides(lines, line, mode):
    files = {
        f"notes/{n}.md": f"A job in garden {chr(97 + n) * 3} started early." for n in range(26)
    }
    files["notes/error.md"] = "A PaletteMissingError says that a theme lacks its colours."
    pasted = "".join(map(line.format, range(lines))) + "app.errors.PaletteMissingError: no theme"
    results = service_of(files).search(pasted, dataset="notes", mode=mode)
    assert results[0].path == "error.md"
    cut = [stage.note for stage in results.stages if "query cut" in (stage.note or "")]
    assert len(cut) == (len(pasted) > 2000)
