"""What one pattern names among paths: as in .gitignore, and in bounded time."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from catalog.core.globs import Glob, GlobRules
from tables import table

TREE = ["a", "a.md", "b/a", "b/a.md", "a/b", "a/b/c.md", "b/c/a/d", "a/c/b", ".a", "b/[a", "a b"]


def test_a_pattern_longer_than_any_path_matches_none():
    assert Glob.compile("a" * 4096).matches("a" * 4096)
    assert not Glob.compile("a" * 4097).matches("a" * 4097)


def among(pattern, paths=TREE):
    glob = Glob.compile(pattern)
    return [path for path in paths if glob.matches(path)]


@table("pattern, paths", list)
def test_a_pattern_names_paths_as_a_line_of_gitignore_does(pattern, paths):
    assert among(pattern) == (TREE if paths == ["*"] else paths)


def test_what_begins_like_a_comment_or_ends_in_a_blank_can_be_escaped():
    paths = ["#a", "!a", "a ", "a", "\\a"]
    assert among("\\#a", paths) == ["#a"]
    assert among("\\!a", paths) == ["!a"]
    assert among("a\\ ", paths) == ["a "]
    assert among("\\\\a", paths) == ["\\a"]


def test_in_brackets_what_expressions_know_is_a_plain_character():
    paths = ["a\\", "a&", "a~", "a|", "a^", "ab", "a\\]"]
    assert among("a[&~|-]", paths) == ["a&", "a~", "a|"]
    assert among("a[||&&~~]", paths) == ["a&", "a~", "a|"]
    assert among("a[b^]", paths) == ["a^", "ab"]


def test_neither_stars_nor_marks_nor_brackets_match_a_slash():
    for pattern in ("a*b", "a?b", "a[!x]b", "a[.-0]b"):
        assert among(pattern, ["a/b", "a.b"]) == ["a.b"]


def test_accents_line_ends_and_dots_in_names_are_plain_characters():
    paths = ["é/naïve.md", "a\nb/c", "a\n", "a", "..x", ".x", "é", "日本/x"]
    assert among("é", paths) == ["é/naïve.md", "é"]
    assert among("/?", paths) == ["é/naïve.md", "a", "é"]
    assert among("**/c", paths) == ["a\nb/c"]
    assert among("a?b", paths) == ["a\nb/c"]
    assert among("a", paths) == ["a"]
    assert among("*x", paths) == ["..x", ".x", "日本/x"]
    assert among("..*", paths) == ["..x"]
    assert among("[à-ü]", paths) == ["é/naïve.md", "é"]


@pytest.mark.parametrize(
    "pattern",
    [
        "*?*?*?*?*?*?*?*?*?*?x", "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b",
        "*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]x", "*[!b]*[!b]*[!b]*[!b]*[!b]*[!b]*[!b]b",
        "*" * 60 + "x", "**/**/**/**/**/x", "**/a/" * 20 + "x", "a/**/" * 20 + "x",
        "**/*a*a*/" * 12 + "*x", "*a*a*a*/" * 12 + "x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["a" * 200, "/".join("a" * 100), "/".join(["a" * 19] * 10)])
def test_a_pattern_with_explosive_backtracking_ends_in_time(pattern, path):
    assert not Glob.compile(pattern).matches(path)


ORDINARY = st.sampled_from(
    ["a", "b", "*", "*.md", "a*", "?b", "a/", "/a", "a/b", "**/b", "a/**", "a/**/b", "b/", "*/"]
)
LINES = st.lists(st.tuples(st.booleans(), ORDINARY), min_size=1, max_size=5).map(
    lambda rules: ["!" * negated + line for negated, line in rules]
)
TREES = st.lists(st.sampled_from(["a", "b", "ab", "c.md", "a.md"]), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(LINES, st.lists(TREES.map("/".join), min_size=1, max_size=5))
def test_rules_together_mean_what_pathspec_takes_them_for(lines, paths):
    rules, expected = GlobRules.compile(lines), GitIgnoreSpec.from_lines(lines)
    assert [rules.match(path) for path in paths] == list(map(expected.match_file, paths))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(ORDINARY, max_size=3).map("/".join), TREES.map("/".join))
def test_any_pattern_means_what_pathspec_takes_it_for(pattern, path):
    assume("//" not in pattern)  # which pathspec reads in ways of its own
    assert Glob.compile(pattern).matches(path) == GitIgnoreSpec.from_lines([pattern]).match_file(
        path
    )


def test_a_line_without_a_meaning_matches_nothing_and_spares_the_others():
    rules = GlobRules.compile(["*.md", "!", "a\\", "x" * 5000, "#a", "[", "!b.md"])
    assert [rules.match(path) for path in ("a.md", "b.md", "a")] == [True, False, False]


@pytest.mark.parametrize(
    "pattern", ["*a" * 100 + "*b", "**/a*" * 30 + "b", "a*?" * 40 + "/", "*a*" * 50]
)
@pytest.mark.parametrize("path", ["a" * 255, "/".join("a" * 100), "a" * 250 + "/" + "a" * 250])
def test_ignore_rules_with_explosive_backtracking_end_in_time(pattern, path):
    rules = GlobRules.compile([pattern])
    assert rules.match(path) in (True, False)
