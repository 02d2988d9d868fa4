"""Windows: nothing a model would silently drop."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.tokens import CharTokenCounter
from catalog.embedding.windows import SPECIAL_TOKENS, ModelTokenCounter, split_into_windows

COUNTER = CharTokenCounter()


class WordCounter:
    """Two tokens a word, as a subword tokenizer may cut it."""

    name = "words"

    def spans(self, text):
        words = [(m.start(), m.end()) for m in re.finditer(r"\S+", text)]
        halves = [((s, (s + e) // 2), ((s + e) // 2, e)) for s, e in words]
        return np.array([half for word in halves for half in word], dtype=np.int64).reshape(-1, 2)


def tokens(text):
    return len(COUNTER.spans(text)) + SPECIAL_TOKENS


def test_a_passage_that_fits_is_one_window_with_its_lead():
    assert split_into_windows("short text", COUNTER, 64, "Title\n") == ["Title\nshort text"]


def test_a_long_passage_is_cut_into_windows_of_about_equal_size_between_words():
    text = " ".join(f"word{number}" for number in range(200))
    counter = WordCounter()
    windows = split_into_windows(text, counter, 128)
    assert " ".join(windows) == text
    sizes = [len(counter.spans(window)) + SPECIAL_TOKENS for window in windows]
    assert len(windows) == 4  # 400 tokens, 126 at most in each
    assert max(sizes) <= 128
    assert min(sizes) > 0.7 * max(sizes)


@given(st.text(max_size=3000), st.text(max_size=400), st.integers(48, 200))
def test_no_window_is_too_long_and_no_text_is_lost(text, lead, limit):
    windows = split_into_windows(text, COUNTER, limit, lead)
    assert windows
    assert all(tokens(window) <= limit for window in windows)
    kept = "".join("".join(windows).split())
    for word in text.split():
        assert word[:1] in kept
    if not lead:
        assert kept == "".join(text.split())


class Uncounted(WordCounter):
    """Refuses to count."""

    def spans(self, text):
        raise AssertionError(f"counted {text[:20]!r}")


def test_text_that_surely_fits_is_not_counted_again():
    text = " ".join(f"word{number}" for number in range(40))
    assert split_into_windows("as short as this", Uncounted(), 64, "Title\n")
    assert split_into_windows(text, Uncounted(), 128, "Title\n", tokens=80) == ["Title\n" + text]


def test_a_size_that_may_not_fit_is_counted_with_its_lead():
    text = " ".join(f"word{number}" for number in range(60))  # 120 tokens
    assert len(split_into_windows(text, WordCounter(), 128, tokens=120)) == 1
    assert (
        len(split_into_windows(text, WordCounter(), 128, "One more title here\n", tokens=120)) == 2
    )


def test_what_is_cut_into_windows_is_not_tokenised_again_beside_other_texts(tmp_path, monkeypatch):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"word": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    counter = ModelTokenCounter(tmp_path / "tokenizer.json", "words")
    first = counter.spans("word and word")
    assert first.tolist() == [[0, 4], [5, 8], [9, 13]]
    counter.spans("another text")
    monkeypatch.setattr(counter, "tokenizer", None)
    assert counter.spans("word and word").tolist() == first.tolist()
