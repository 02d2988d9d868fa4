"""Which words a text is found by."""

import string
import tomllib
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.errors import ConfigError
from catalog.store.lexical.analysis import MAX_LENGTH, Analyzer, query_terms, raw_words
from catalog.store.lexical.languages import WordRules
from growth import assert_linear
from tables import table

TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

ENGLISH = Analyzer()


@pytest.fixture
def unstemmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WordRules, "stem", lambda _, word: word)


@pytest.mark.parametrize(("text", "tokens"), TABLES["a text is found by these words"])
@pytest.mark.usefixtures("unstemmed")
def test_a_text_is_found_by_these_words(text: str, tokens: list[str]) -> None:
    assert Analyzer().tokens(text) == tokens


def test_forms_of_a_word_are_one_token() -> None:
    assert ENGLISH.tokens("rotating") == ENGLISH.tokens("rotated")
    assert ENGLISH.tokens("log-ins")[0] == ENGLISH.tokens("login")[0]


@pytest.mark.parametrize(
    ("text", "tokens"), TABLES["a passage is found by the letters and the number of a name"]
)
@pytest.mark.usefixtures("unstemmed")
def test_a_passage_is_found_by_the_letters_and_the_number_of_a_name(
    text: str, tokens: list[str]
) -> None:
    assert Analyzer(is_passage=True).tokens(text) == tokens


@pytest.mark.parametrize(("query", "terms"), TABLES["a word of a query and its other spellings"])
def test_a_word_of_a_query_comes_with_the_other_ways_to_write_it(
    query: str, terms: list[list[str]]
) -> None:
    assert query_terms(query, ["english"]) == [tuple(one) for one in terms]


def test_a_compound_is_found_by_the_lower_case_spelling_of_its_whole_and_parts() -> None:
    document = set(ENGLISH.tokens("class QueryFusionRetriever in llama_index.core"))
    for query in ("queryfusionretriever", "fusion retrievers", "llama_index", "LLAMA_INDEX.CORE"):
        assert set(ENGLISH.tokens(query)) <= document, query


def test_another_language_has_its_own_stop_words_and_stems() -> None:
    german = Analyzer("german")
    assert german.tokens("die Häuser und das Haus") == ["haus", "haus"]
    assert Analyzer("finnish").tokens("talossa") == ["talo"]


def test_an_unknown_language_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="english"):
        Analyzer("klingon")


@table("line")
def test_time_grows_with_the_length_of_the_line_and_not_with_its_square(line: str) -> None:
    assert_linear(lambda size: ENGLISH.tokens(line * size), 100_000 // len(line))


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0316\uff9e", "\u0f73\u0301"])
def test_marks_in_a_row_are_not_sorted_in_time_quadratic_in_their_number(marks: str) -> None:
    assert len(ENGLISH.tokens("x" + marks * 500_000)) == 1  # else this takes hours


def test_a_word_with_thirty_marks_keeps_them_and_one_with_more_is_found_as_with_thirty() -> None:
    marked = "\u03b1" + "\u0316\u0323" * 15
    assert raw_words(f"{marked} {marked}\u0316\u0323") == [raw_words(marked)[0]] * 2
    assert len(raw_words(marked)[0]) == 31


def test_a_very_long_word_is_found_by_itself_and_no_token_is_long() -> None:
    for word in ("x" * 10_000, "aB" * 5_000, "a.b-" * 3_000 + "c", "_ab" * 5_000):
        tokens = ENGLISH.tokens(word)
        assert len(tokens) > 0
        assert max(map(len, tokens)) <= MAX_LENGTH


@settings(deadline=None)
@given(st.text())
def test_tokens_are_folded_and_can_be_stored(text: str) -> None:
    for token in ENGLISH.tokens(text):
        assert token == token.casefold() != ""
        token.encode("utf-8")


ACCENTED = st.text(string.ascii_letters + "éüñçÀÖß -._", max_size=40)


@settings(deadline=None)
@given(ACCENTED)
def test_composed_and_decomposed_spellings_are_one(text: str) -> None:
    assert ENGLISH.tokens(unicodedata.normalize("NFD", text)) == ENGLISH.tokens(text)


@settings(deadline=None)
@given(st.lists(st.text(string.ascii_letters + string.digits + "._-#+'é日", max_size=8)))
def test_words_are_analysed_each_on_its_own(words: list[str]) -> None:
    one_by_one = [token for word in words for token in ENGLISH.tokens(word)]
    assert ENGLISH.tokens(" ".join(words)) == one_by_one


@pytest.mark.slow
def test_threads_may_share_an_analyzer() -> None:
    shared = Analyzer()
    texts = [" ".join(f"w{n}ing x{m}" for m in range(200)) for n in range(40)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(shared.tokens, texts)) == [Analyzer().tokens(text) for text in texts]
