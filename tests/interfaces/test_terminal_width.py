"""Passages in terminals of any width: nothing is wider, prose flows, code and tables do not."""

import re
from itertools import pairwise

import pytest
from rich.cells import cell_len

from catalog.core.results import CatalogEntry, CatalogPage
from catalog.interfaces.plain_text import wrap
from catalog.interfaces.terminal import Form, passages_text, render
from made_results import answer, result

PROSE = (
    "Every key is rotated every ninety days by the service itself. The old key answers\n"
    "for one more day, so that no client is cut off. A key that leaked is revoked at\n"
    "once by whoever finds it."
)
CHINESE = "每九十天轮换一次密钥。旧密钥在新密钥生效后二十四小时内仍然有效，之后会被自动撤销。" * 2
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
STYLE = re.compile("\x1b\\[\\d+m")


def shown(text, width, *, passage=None, bold=False, **more):
    fields = {"snippet": text, "text": text if passage is None else passage, "matches": ()}
    out = passages_text(answer(result(**{**fields, **more})), Form(width=width, bold=bold)).out
    return out.splitlines()[:-1]


def snippet(text, width, **more):
    lines = shown(text, width, **more)
    first = next(at for at, line in enumerate(lines) if at and "notes/keys.md" not in line)
    return [line[4:] for line in lines[first:]]


@pytest.mark.parametrize("text", [PROSE, CHINESE, f"{FAMILY} " * 40, "x" * 300, "a\tb " * 60])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(text, width):
    lines = shown(text, width)
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(snippet(text, width)).split()) == "".join(text.split())


def test_lines_that_were_broken_to_fit_a_page_flow_into_one_another():
    assert snippet(PROSE, 200) == [
        "Every key is rotated every ninety days by the service itself. The old key answers for one "
        "more day, so that no client is cut off. A key that leaked is revoked at once by whoever "
        "finds it."
    ]
    lines = snippet(PROSE, 60)
    assert all(cell_len(f"{a} {b.split()[0]}") > 56 for a, b in pairwise(lines))
    assert "…" not in "".join(lines)


def test_lines_that_mean_something_by_themselves_stay_lines():
    letters = "Roses are red,\nviolets are blue,\nsugar is sweet."
    assert snippet(letters, 80) == letters.split("\n")
    fields = "Package: catalog with a long line that fills its room\nVersion: 2 and some more text"
    assert snippet(fields, 80) == fields.split("\n")


CODE = "def rotate(client, *, grace_hours=24, notify=('ops',)):\n    return client.rotate(keys)"


@pytest.mark.parametrize(
    ("text", "file_type"), [(CODE, "py"), (f"```\n{CODE}\n```", "md"), (f"    {CODE}", "rst")]
)
def test_code_is_cut_at_the_edge_and_never_wrapped(text, file_type):
    lines = snippet(text, 40, file_type=file_type)
    assert len(lines) == len(text.split("\n"))
    assert sum(line.endswith("…") for line in lines) == 1
    assert snippet(text, 200, file_type=file_type) == text.split("\n")


def test_a_snippet_that_begins_within_code_is_code():
    passage = f"Run this:\n\n```\nimport os\n{CODE}\n```\n"
    assert snippet(CODE, 200, passage=passage) == CODE.split("\n")


def test_a_row_of_a_table_shows_what_was_looked_for():
    row = f"| enterprise | {'10000 | ' * 12}keys are rotated by the owner alone |"
    at = row.index("rotated")
    (line,) = snippet(row, 60, matches=((at, at + 7),))
    assert line.startswith("…")
    assert "rotated" in line
    assert cell_len(line) <= 56


def test_a_passage_that_begins_within_a_sentence_says_so_but_no_document_does():
    text = "with keys that leaked. Revoke them."
    assert snippet(text, 80, start_offset=300) == [f"… {text}"]
    assert snippet(text, 80) == [text]


def test_a_word_that_matches_is_bold_on_whichever_line_it_stands():
    at = PROSE.index("answers\nfor")
    lines = snippet(PROSE, 46, bold=True, matches=((at, at + 11),))
    assert [STYLE.sub("", line) for line in lines] == snippet(PROSE, 46)
    assert "".join(lines).count("\x1b[1m") == "".join(lines).count("\x1b[22m") == 2


def test_the_heading_that_the_first_line_tells_is_not_told_again():
    assert snippet(f"## Rotating\n\n{PROSE}", 200) == snippet(PROSE, 200)


@pytest.mark.parametrize(
    "title", ["A title that is quite a bit longer than that", "很长的标题" * 9]
)
def test_a_long_title_gives_way_and_the_place_never(title):
    path = "an archive/of old notes/that nobody reads/keys.md"
    lines = shown("Text.", 40, title=title, heading_path=(), path=path)
    assert cell_len(lines[0]) <= 40
    assert lines[0].endswith("…  likely")
    assert lines[1] == f"    {path}:120-121"


def test_an_item_of_a_list_is_set_in_below_its_sign():
    item = "- " + "words of an item " * 6
    lines = snippet(item, 44)
    assert lines[0].startswith("- words")
    assert all(line.startswith("  ") for line in lines[1:])
    assert " ".join(line.strip() for line in lines) == item.strip()


def test_an_emoji_of_several_characters_is_never_parted():
    assert all(line.replace(FAMILY, "") == "" for line in snippet(FAMILY * 20, 40))


def test_a_listing_wraps_summaries_and_tells_no_title_that_is_the_name_of_the_file():
    fields = {
        "source_doc_id": "notes:a/keys.md", "dataset": "notes", "path": "a/keys.md",
        "title": "keys", "file_type": "md", "docid": "3fa9c1ab", "summary": " ".join([PROSE] * 2),
        "tags": (), "created": None, "modified": None, "date": None, "characters": 5,
        "bytes": 5, "chunks": 1, "score": None,
    }  # fmt: skip
    page = CatalogPage(
        dataset="notes", datasets=("notes",), query=None, entries=(CatalogEntry(**fields),),
        total=1, offset=0, types={"md": 1}, notes=(), elapsed_ms=2.0,
    )  # fmt: skip
    first, facts, *summary, _ = render("browse", page, Form(width=60)).out.splitlines()
    assert first == "[1] a/keys.md  #3fa9c1ab"
    assert facts == "    md  5 bytes in 1 passage"
    assert max(map(cell_len, summary)) <= 60
    assert " ".join(line.strip() for line in summary) == " ".join(fields["summary"].split())


def test_a_line_of_blanks_is_an_empty_line():
    assert wrap(" " * 100, 40) == wrap("\t ", 40) == [""]
