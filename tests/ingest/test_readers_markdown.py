"""Markdown: titles, headings, front matter, spans that stay whole."""

from __future__ import annotations

import io

import pytest

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers import ReadLimits
from catalog.ingest.readers.markdown import MarkdownReader
from growth import assert_linear


def parse(text: str, path: str = "notes/plan.md") -> ParsedDocument:
    return MarkdownReader().parse(text, path)


def titles(text: str) -> list[tuple[int, str]]:
    return [(heading.level, heading.title) for heading in parse(text).headings]


@pytest.mark.parametrize(
    "fenced",
    [
        "```\n# no\n```\n",
        "~~~ py\n# no\n```\n# no\n~~~\n",
        "````\n```\n# no\n```\n````\n",
        "   ```\n# no\n   ```\n",
        "- ```sh\n  # no\n  ```\n",
        "1. step\n\n   ```sh\n   # no\n   ```\n",
        "```\r\n# no\r\n```\r\n",
        "<!--\n# no\n-->\n",
        "<pre>\n# no\n</pre>\n",
    ],
)
def test_a_hash_inside_a_fence_is_no_heading_and_what_follows_is(fenced: str) -> None:
    doc = parse(fenced + "\n# Yes\n")
    assert [heading.title for heading in doc.headings] == ["Yes"]
    assert doc.title == "Yes"


def test_an_unclosed_fence_runs_to_the_end() -> None:
    doc = parse("# Yes\n\n```\n# no\n\n# no\n")
    assert titles(doc.text) == [(1, "Yes")]
    assert [doc.text[start:end] for start, end in doc.atomic] == ["```\n# no\n\n# no"]


@pytest.mark.parametrize("line", ["#no", "####### no", "    # no", "\\# no", "> # no", "\t# no"])
def test_a_line_that_only_looks_like_a_heading_is_not_one(line: str) -> None:
    assert titles(f"{line}\n") == []


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_headings_have_exact_offsets_with_every_kind_of_line_end(newline: str) -> None:
    lines = ["# One ##", "", "text", "", "Two", "===", "", "  ### Three", "", "Four", "---"]
    doc = parse(newline.join(lines))
    assert titles(doc.text) == [(1, "One"), (1, "Two"), (3, "Three"), (2, "Four")]
    assert [doc.text[heading.start : heading.end] for heading in doc.headings] == [
        "# One ##", f"Two{newline}===", "  ### Three", f"Four{newline}---",
    ]  # fmt: skip


def test_a_rule_below_a_list_a_quote_or_a_blank_line_makes_no_heading() -> None:
    assert titles("- item\n---\n\n> quote\n---\n\ntext\n\n---\n\n* * *\n") == []


@pytest.mark.parametrize(
    ("markup", "plain"),
    [
        ("[Install](https://x.org/a_(b)) it", "Install it"),
        ("Use `a*b*c` **now**", "Use a*b*c now"),
        ("__init__ and snake_case", "__init__ and snake_case"),
        ("![logo](x.png) _Fine_ &amp; ~~old~~", "logo Fine & old"),
        ("C# {#c-sharp}", "C#"),
        (r"1 \* 2", "1 * 2"),
        ("10<sup>6</sup> t of H<SUB>2</SUB>O", "10^6 t of H_2O"),
    ],
)
def test_markup_in_titles_becomes_plain_text(markup: str, plain: str) -> None:
    assert titles(f"## {markup}\n") == [(2, plain)]


def test_a_title_of_backticks_costs_no_more_than_one_of_letters() -> None:
    lines = "".join(f"## {'`' * count} a {'`' * (count + 1)}\n" for count in (1, 20, 480, 900))
    assert [title for _, title in titles(lines * 50)][:2] == ["` a ``", f"{'`' * 20} a {'`' * 21}"]


def test_fences_and_tables_are_kept_whole() -> None:
    table = "| a | b |\n|---|:-:|\n| 1 | 2 |"
    doc = parse(f"text\n\n{table}\n\n```py\nx = 1\n```\n")
    whole = [doc.text[start:end] for start, end in doc.atomic]
    assert whole == [table, "```py\nx = 1\n```"]


def test_front_matter_becomes_metadata_and_the_body_begins_after_it() -> None:
    doc = parse(
        "---\ntitle: Key  rotation\nTags: [ops, '#keys', ops]\ndate: 2024-01-05\n"
        "lastmod: 2024-02-03 10:00:00\nurl: https://example.org/k\nowner:\n  team: core\n"
        "count: 3\nratio: 0.5\ndraft: false\nnone: null\n---\n# Heading\n\nBody\n"
    )
    assert doc.title == "Key rotation"
    assert dict(doc.metadata) == {
        "tags": ("ops", "keys"),
        "created": "2024-01-05",
        "modified": "2024-02-03T10:00:00",
        "source_url": "https://example.org/k",
        "owner.team": "core",
        "count": 3,
        "ratio": 0.5,
        "draft": False,
    }
    assert doc.text[doc.body_start :] == "# Heading\n\nBody\n"


def test_toml_front_matter_is_read_too() -> None:
    doc = parse('+++\r\ntitle = "T"\r\ntags = ["a"]\r\ndate = 2024-01-05\r\n+++\r\nBody\r\n')
    assert (doc.title, dict(doc.metadata)) == ("T", {"tags": ("a",), "created": "2024-01-05"})
    assert doc.text[doc.body_start :] == "Body\r\n"


def test_a_source_that_is_no_address_keeps_its_own_name_and_tags_may_be_a_string() -> None:
    metadata = dict(parse("---\nsource: my notebook\nkeywords: a, b\n---\nx\n").metadata)
    assert metadata == {"source": "my notebook", "tags": ("a", "b")}


@pytest.mark.parametrize(
    "block",
    [
        "flag: !!bool maybe",
        "n: " + "9" * 5000,
        "deep: " + "[" * 500,
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
    ],
)
def test_broken_or_dangerous_front_matter_is_dropped_and_the_body_still_read(block: str) -> None:
    doc = parse(f"---\n{block}\n---\n# Body title\n\nBody\n")
    assert dict(doc.metadata) == {}
    assert doc.title == "Body title"
    assert doc.text[doc.body_start :].startswith("# Body title")


def test_an_impossible_date_stays_the_string_that_was_written_and_is_no_date() -> None:
    doc = parse("---\ndate: 2024-13-45\ntitle: T\n---\nx\n")
    assert (doc.title, dict(doc.metadata)) == ("T", {"date": "2024-13-45"})


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nprose between rules\n\n---\n\nmore\n",
        "---\nDear all: a word on Monday.\nIt stands between rules.\n---\n\nmore\n",
        "---\ntitle: never closed\n",
        "---\ntitle: no body\n---\n",
        "---\ntitle: x\nlong: " + "y" * 70_000 + "\n---\nbody\n",
    ],
)
def test_no_text_is_lost_to_something_that_only_begins_like_front_matter(text: str) -> None:
    assert parse(text).body_start == 0


def test_the_title_falls_back_to_the_file_name() -> None:
    assert parse("just text\n").title == "plan"
    assert len(parse("# " + "long " * 400).title) <= 300


@pytest.mark.parametrize(
    "line",
    [
        "a: [[0x" + "f" * 5000 + "]]",
        "a: {b: [{c: 0x" + "f" * 5000 + "}]}",
        "0x" + "f" * 5000 + ": a",
        "a: [{0x" + "f" * 5000 + ": b}]",
        "a: [{2020-01-01: b, 2020-01-01T10:00:00Z: c}]",
        "a: [[!!set {2020-01-01, 1, x}]]",
        "a: !!set {0x" + "f" * 5000 + ", b}",
        "a: [[!!binary aGVsbG8=]]",
    ],
)
def test_front_matter_with_values_that_nothing_can_print_is_read_all_the_same(line):
    document = next(
        MarkdownReader().read(
            io.BytesIO(f"---\n{line}\n---\nA walrus.\n".encode()), "a.md", limits=ReadLimits()
        )
    )
    assert "walrus" in document.text


def test_headings_of_a_text_that_is_one_list_count() -> None:
    text = "tags:: pumps\n\n- # Pumps\n\t- ## Valves #\n\t\t- Open slowly.\n- ### [[Seals]]\n"
    assert titles(text) == [(1, "Pumps"), (2, "Valves"), (3, "[[Seals]]")]
    assert titles("Intro.\n\n- # not one\n") == []
    assert titles("- one\n- #tag\n- two\n") == []


@pytest.mark.parametrize("title", ["Captions", "Subtitles"])
def test_a_heading_that_may_mean_a_transcript_needs_no_remark(title: str) -> None:
    assert parse(f"# Thesis\n\n## {title}\n\nThey go below the figure.\n").untimed is None
    assert parse("# Subtitles\n\nA library.\n", "subtitle-README.md").untimed is None
    assert parse("Hello.\n", "talk.subtitles.en.md").untimed is not None


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("title: Assignment 1: The wherry", "Assignment 1: The wherry"),
        ("title: [draft] The wherry", "[draft] The wherry"),
        ("title: The wherry, @home: a plan", "The wherry, @home: a plan"),
    ],
)
def test_one_line_of_front_matter_that_is_no_yaml_costs_no_other(line, title):
    document = parse(f"---\n{line}\ntags: [river]\ndate: 2024-03-05\n---\n\nShe leaks.\n", "a.md")
    assert document.title == title
    assert document.metadata == {"tags": ("river",), "created": "2024-03-05"}
    assert line in document.text, "the block stays part of the text"
    assert document.remarks == ("the front matter is no YAML in line 2: quote the value",)


def test_tags_in_the_text_are_tags_but_not_those_in_code_headings_and_links() -> None:
    text = (
        "---\ntags: [boats]\n---\n# One #no\n\n- [ ] oil #gear/maintenance #boats and `#no`\n"
        "[a](#no) x#no #1 color: #fff000\n\n```\n#no\n```\n\n    #no\n\n[b]: #no\n#Größe\n"
    )
    assert parse(text).metadata["tags"] == ("boats", "gear/maintenance", "Größe")


def test_headings_in_html_count_with_exact_offsets() -> None:
    text = '<h1 align="center">\n  <img src="l.svg" alt="logo"><br>\n\n  Gannet\n</h1>\n\n'
    text += "<h2>Use</h2>\n"
    doc = parse(f"{text}\n```\n<h2>no</h2>\n```\n<!--\n<h2>no</h2> -->\n")
    assert titles(doc.text)[:2] == [(1, "Gannet"), (2, "Use")]
    assert [doc.text[h.start : h.end] for h in doc.headings][1] == "<h2>Use</h2>"
    assert (len(doc.headings), doc.title) == (2, "Gannet")
    assert titles('<h1><img src="a.png" alt="Gannet"></h1>') == [(1, "Gannet")]


def test_tags_of_zola_are_tags() -> None:
    doc = parse('+++\ntitle = "T"\n[taxonomies]\ntags = ["bells"]\n+++\nBody\n')
    assert doc.metadata["tags"] == ("bells",)


def test_long_runs_of_plain_lines_change_no_block() -> None:
    rows = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 40
    text = "- item\n" * 30 + "\n" + "words\n" * 30 + "\n" + "Last\n---\n\n" + rows + "\n# End\n"
    doc = parse(text)
    assert titles(text) == [(2, "Last"), (1, "End")]
    assert [doc.text[start:end] for start, end in doc.atomic] == [rows.strip()]


@pytest.mark.parametrize(
    "piece", ["# _a a a ", "# _a a\n", "- item\n", "| a | b |\n", "<h1>a", "> ", "#a "]
)
def test_repeated_marks_take_linear_time(piece: str) -> None:
    assert_linear(lambda size: parse(piece * size), 100_000 // len(piece))
