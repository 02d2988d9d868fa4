"""Documents on the page: drawn PDF pages, recordings that play, and bars that explain a score."""

import io
import os
import re
import struct
import unicodedata
import zlib
from html import unescape
from threading import Semaphore

import PIL.Image
import PIL.ImageOps
import pytest
from reportlab.pdfgen.canvas import Canvas

from catalog.core.errors import DocumentNotFoundError, NotReadyError
from catalog.core.scope import asked_as
from catalog.core.settings import AnswerSettings
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.server.page.files import draw_page
from catalog.interfaces.server.page.search import score_bars
from catalog.library.indexing import Indexer
from fakes import open_library, write
from ingest.test_readers_pdf_right_to_left import ARABIC, HEBREW, pdf_of, placed
from tables import table
from workbooks import workbook

SRT = "1\n00:00:00,000 --> 00:00:09,000\nA gradient points uphill.\n\n" \
      "2\n00:00:10,000 --> 00:00:19,000\nWe descend against it.\n"  # fmt: skip


def manual(path, rotated=0):
    canvas = Canvas(str(path), pagesize=(400, 600))
    for title, line in (("Pumps", "The seal leaks at night."), ("Valves", "Oil the disc weekly.")):
        canvas.setPageRotation(rotated)
        canvas.drawString(50, 550, title)
        canvas.drawString(50, 500, line)
        canvas.drawString(50, 100, f"Notes on {title.lower()} follow elsewhere.")
        canvas.showPage()
    canvas.save()


@pytest.fixture(scope="module")
def vault(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vault")
    notes = folder / "notes"
    write(
        notes,
        lecture_dot_srt=SRT,
        board_dot_srt=SRT.replace("gradient", "takeover"),
        board_dot_meta_dot_yaml="confidentiality: secret\n",
        thief_dot_md="---\nmedia_file: ../outside.wav\n---\n# Thief\n\nA thief reads on.\n",
        guest_dot_md="---\nmedia_file: board.wav\n---\n# Guest\n\nA guest listens in.\n",
        linked_dot_srt=SRT.replace("gradient", "symlink"),
        broken_dot_md="# Broken\n\nNothing to draw.\n",
    )
    for name in ("lecture.wav", "board.wav", "../outside.wav"):
        (notes / name).write_bytes(b"RIFF" + struct.pack("<I", 36) + bytes(range(200)))
    (notes / "linked.wav").symlink_to(folder / "outside.wav")
    manual(notes / "manual.pdf")
    library = open_library(folder / "home")
    roles = AnswerSettings(roles=("guest: unlabelled",))
    library.settings = library.settings.model_copy(update={"answers": roles})
    with LocalEngine(library) as engine:
        Indexer(engine.library).build(notes, "notes")
        yield engine


def test_a_recording_is_given_out_in_the_ranges_asked_for(asked, vault):
    path = "/media?doc=notes:lecture.srt"
    whole = asked(vault, "GET", path)
    assert (whole.status_code, whole.headers["content-type"]) == (200, "audio/wav")
    assert whole.headers["accept-ranges"] == "bytes"
    part = asked(vault, "GET", path, headers={"range": "bytes=8-11"})
    assert (part.status_code, part.content) == (206, bytes(range(4)))
    assert part.headers["content-range"] == f"bytes 8-11/{len(whole.content)}"
    beyond = asked(vault, "GET", path, headers={"range": "bytes=9999-"})
    assert beyond.status_code == 416


@table("name")
def test_no_file_outside_the_indexed_folder_is_given_out(asked, vault, name):
    for path in (f"/media?doc={name}", f"/page.png?doc={name}&page=1"):
        answer = asked(vault, "GET", path)
        assert answer.status_code in (400, 404)
        assert bytes(range(20)) not in answer.content


@pytest.mark.parametrize("name", ["broken.md", "manual.pdf"])
def test_only_recordings_are_given_out_as_they_are(asked, vault, name):
    assert asked(vault, "GET", f"/media?doc=notes:{name}").status_code == 404


def test_a_role_hears_only_recordings_of_documents_that_it_may_see(asked, vault):
    assert asked(vault, "GET", "/media?doc=notes:board.srt").status_code == 200
    with asked_as("guest"):
        for name in ("board.srt", "guest.md"):  # the second claims the recording of the first
            assert asked(vault, "GET", f"/media?doc=notes:{name}").status_code == 404
        assert asked(vault, "GET", "/media?doc=notes:lecture.srt").status_code == 200


@pytest.fixture
def relabelled(tmp_path):
    """Originals that are secret, with texts that are not; and files of equal standing."""
    notes = tmp_path / "notes"
    secret = "confidentiality: secret\n"
    write(
        notes,
        talk_dot_srt=SRT,
        talk_dot_srt_dot_meta_dot_yaml="confidentiality: public\n",
        talk_dot_wav_dot_meta_dot_yaml=secret,
        open_dot_srt=SRT,
        open_dot_srt_dot_meta_dot_yaml="confidentiality: public\n",
        open_dot_wav_dot_meta_dot_yaml="confidentiality: public\n",
        scan_dot_pdf_dot_md="---\nconfidentiality: public\n---\nRedacted.\n",
        later_dot_pdf_dot_meta_dot_yaml="confidentiality: public\n",
        sub__hidden_dot_pdf_dot_meta_dot_yaml=secret,
    )
    for name in ("talk.wav", "open.wav", "spare.wav"):
        (notes / name).write_bytes(b"RIFF" + struct.pack("<I", 36) + bytes(range(200)))
    for name in ("scan.pdf", "later.pdf", "sub/hidden.pdf"):
        manual(notes / name)
    library = open_library(tmp_path / "home")
    answers = AnswerSettings(roles=("guest: public",))
    library.settings = library.settings.model_copy(update={"answers": answers})
    with LocalEngine(library) as engine:
        Indexer(engine.library).build(notes, "notes")
        yield engine, notes


@pytest.mark.slow
def test_a_role_gets_no_original_whose_own_level_it_may_not_see(asked, relabelled):
    engine, _ = relabelled
    paths = ("/media?doc=notes:talk.srt", "/page.png?doc=notes:scan.pdf.md&page=1")
    for path in paths:
        assert asked(engine, "GET", path).status_code == 200
    with asked_as("guest"):
        assert "Redacted" in asked(engine, "GET", "/?q=redacted").text
        for path in (*paths, "/page.png?doc=notes:scan.pdf&page=1"):
            assert asked(engine, "GET", path).status_code == 404
        assert asked(engine, "GET", "/media?doc=notes:open.srt").status_code == 200
        assert asked(engine, "GET", "/page.png?doc=notes:later.pdf&page=1").status_code == 200


@pytest.mark.slow
def test_a_file_that_changed_since_it_was_indexed_is_not_given_out(asked, relabelled):
    engine, notes = relabelled
    path = "/page.png?doc=notes:later.pdf&page=1"
    os.utime(notes / "later.pdf", (1_000_000_000, 1_000_000_000))  # touched: the same bytes
    assert asked(engine, "GET", path).status_code == 200
    manual(notes / "later.pdf", rotated=90)
    changed = asked(engine, "GET", path)
    assert (changed.status_code, "has changed since it was indexed" in changed.text) == (404, True)
    (notes / "later.pdf").unlink()
    (notes / "later.pdf").symlink_to(notes / "sub" / "hidden.pdf")
    with asked_as("guest"):
        assert asked(engine, "GET", path).status_code == 404


def test_a_version_that_could_not_be_read_is_not_given_out(asked, relabelled):
    engine, notes = relabelled
    manual(notes / "later.pdf", rotated=90)
    (notes / "later.pdf.meta.yaml").write_text("confidentiality: [secret\n", encoding="utf-8")
    Indexer(engine.library).update("notes")
    path = "/page.png?doc=notes:later.pdf&page=1"
    assert asked(engine, "GET", path).status_code == 404
    with asked_as("guest"):
        assert "pumps" in asked(engine, "GET", "/?q=pumps&doc=notes:later.pdf").text.casefold()
        assert asked(engine, "GET", path).status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["decomposed", "dangling", "folder"])
def test_a_level_in_an_odd_place_still_holds_for_a_recording(asked, tmp_path, kind):
    notes = tmp_path / "notes"
    write(notes, é_dot_srt=SRT, é_dot_srt_dot_meta_dot_yaml="confidentiality: public\n")
    (notes / "é.wav").write_bytes(b"RIFF" + struct.pack("<I", 36) + bytes(range(200)))
    if kind == "decomposed":
        name = unicodedata.normalize("NFD", "é.wav.meta.yaml")
        (notes / name).write_text("confidentiality: secret\n", encoding="utf-8")
    library = open_library(tmp_path / "home")
    answers = AnswerSettings(roles=("guest: public",))
    library.settings = library.settings.model_copy(update={"answers": answers})
    with LocalEngine(library) as engine:
        Indexer(library).build(notes, "notes")
        if kind == "dangling":
            (notes / ".catalog.yaml").symlink_to(notes / "nowhere")
        if kind == "folder":
            (notes / ".catalog.yaml").mkdir()
        assert asked(engine, "GET", "/media?doc=notes:é.srt").status_code == 200
        with asked_as("guest"):
            assert asked(engine, "GET", "/media?doc=notes:é.srt").status_code == 404


@pytest.mark.slow
def test_files_with_decomposed_names_are_given_out(asked, tmp_path):
    notes = tmp_path / unicodedata.normalize("NFD", "é")
    folder = notes / unicodedata.normalize("NFD", "süß")
    folder.mkdir(parents=True)
    manual(folder / unicodedata.normalize("NFD", "café.pdf"))
    with LocalEngine(open_library(tmp_path / "home")) as engine:
        Indexer(engine.library).build(notes, "notes")
        answer = asked(engine, "GET", "/page.png?doc=notes:süß/café.pdf&page=1")
        assert answer.status_code == 200


def test_nothing_is_given_out_from_above_a_folder_that_is_gone(asked, tmp_path):
    notes = tmp_path / "notes"
    write(notes, n_dot_md="---\nmedia_file: late.wav\n---\n# N\n\nText.\n")
    with LocalEngine(open_library(tmp_path / "home")) as engine:
        Indexer(engine.library).build(notes, "notes")
        (tmp_path / "late.wav").write_bytes(b"RIFF" + bytes(200))
        (notes / "n.md").unlink()
        notes.rmdir()
        assert asked(engine, "GET", "/media?doc=notes:n.md").status_code == 404


def test_who_comes_while_two_pages_are_drawn_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr("catalog.interfaces.server.page.files._WAIT", 0.01)
    monkeypatch.setattr("catalog.interfaces.server.page.files._DRAWING", Semaphore(0))
    manual(tmp_path / "busy.pdf")
    with pytest.raises(NotReadyError, match="try again in a moment"):
        draw_page(tmp_path / "busy.pdf", 1)


def test_a_role_is_not_led_to_another_recording_by_a_link(asked, relabelled):
    engine, notes = relabelled
    (notes / "open.wav").unlink()
    (notes / "open.wav").symlink_to(notes / "spare.wav")  # of no level
    with asked_as("guest"):
        assert asked(engine, "GET", "/media?doc=notes:open.srt").status_code == 404


@pytest.mark.slow
def test_a_page_that_cannot_be_drawn_is_not_tried_again_at_once(tmp_path, monkeypatch):
    (tmp_path / "broken.pdf").write_bytes(b"no pdf")
    for _ in range(2):
        with pytest.raises(DocumentNotFoundError):
            draw_page(tmp_path / "broken.pdf", 7)
        monkeypatch.setattr("catalog.interfaces.server.page.files.subprocess.run", None)


def test_rows_of_a_workbook_are_marked_in_their_own_sheet(asked, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    rows = {
        "Costs": [["Item", "Price"], ["Rope", 12], ["Tent", 90]],
        "It's; old": [["Item", "Price"], ["Lamp", 5], ["Stove", 40]],
    }
    (notes / "camp.xlsx").write_bytes(workbook(rows))
    with LocalEngine(open_library(tmp_path / "home")) as engine:
        Indexer(engine.library).build(notes, "notes")
        for asked_for, other in (("Stove", "Tent"), ("Tent", "Stove")):
            found = asked(engine, "GET", f"/?q={asked_for}&mode=lexical").text
            address = unescape(re.search(r'class="result" href="([^"#]+)', found)[1])
            page = asked(engine, "GET", address).text
            assert page.count('<li class="open">') == 1
            marked = re.findall(r'<p[^>]*class="cited[^"]*">(.*?)</p>', page)
            assert any(asked_for in line for line in marked)
            assert not any(other in line for line in marked)


def test_the_process_that_draws_gets_no_tokens(tmp_path, monkeypatch):
    monkeypatch.setenv("IDX_SERVE__TOKEN", "t" * 20)
    seen = []
    monkeypatch.setattr(
        "catalog.interfaces.server.page.files.subprocess.run",
        lambda *_, env, **__: seen.append(env),
    )
    (tmp_path / "a.pdf").write_bytes(b"no pdf")
    with pytest.raises(AttributeError):
        draw_page(tmp_path / "a.pdf", 1)
    assert "PATH" in seen[0]
    assert not any("IDX" in name for name in seen[0])


def test_a_recording_opens_at_its_second_with_its_lines(asked, vault):
    page = asked(vault, "GET", "/?q=descend&doc=notes:lecture.srt&first=3&last=7&at=10").text
    source = "./media?doc=notes%3Alecture.srt#t=10"
    assert f'<audio id="media" controls preload="metadata" src="{source}"' in page
    assert re.search(r'<li data-start="10.0"[^>]* class="now">.*We descend against it', page)
    lost = asked(vault, "GET", "/?q=thief&doc=notes:thief.md").text
    assert "<audio" not in lost
    assert "is not in the dataset&#39;s folder" in lost


@pytest.mark.slow
def test_a_page_of_a_pdf_is_drawn_with_boxes_over_the_cited_lines(asked, vault):
    answer = asked(vault, "GET", "/?q=oil+the+disc&doc=notes:manual.pdf&first=2&last=2")
    assert "Page 2 of 2" in answer.text
    boxes = re.findall(
        r'<rect(?: id="at")? x="(-?\d+)" y="(-?\d+)" width="(\d+)" height="(\d+)"',
        answer.text.partition('class="drawn"')[2],
    )
    tops = [int(y) * 600 / 1650 for _, y, *_ in boxes]  # in points from the top of the page
    assert any(80 < top < 100 for top in tops)  # its baseline is 100 points from the top
    assert "Oil the disc weekly." in answer.text
    assert "The seal leaks" not in answer.text.partition('id="document"')[2]
    picture = asked(vault, "GET", "/page.png?doc=notes:manual.pdf&page=2")
    with PIL.Image.open(io.BytesIO(picture.content)) as image:
        assert image.size == (1100, 1650)
    for page in ("0", "3", "-1", "x", "9999999", ""):
        answer = asked(vault, "GET", f"/page.png?doc=notes:manual.pdf&page={page}")
        assert answer.status_code == 404


@pytest.mark.slow
def test_boxes_lie_on_the_words_of_a_turned_page(tmp_path):
    manual(tmp_path / "turned.pdf", rotated=90)
    drawn = draw_page(tmp_path / "turned.pdf", 1, "Notes on pumps follow elsewhere.")
    ((x, y, width, height),) = drawn.boxes
    assert height > width
    with PIL.Image.open(io.BytesIO(drawn.png)) as image:
        inside = image.convert("L").crop((x - 2, y - 2, x + width + 2, y + height + 2))
    assert inside.getextrema()[0] < 80  # there are letters


@pytest.mark.slow
@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_a_box_lies_on_the_words_whichever_way_they_are_drawn(tmp_path, turned):
    canvas = Canvas(str(tmp_path / "one.pdf"), pagesize=(400, 600))
    canvas.translate(200, 300)
    canvas.rotate(turned)
    canvas.drawString(20, 30, "The seal leaks at night.")
    canvas.save()
    drawn = draw_page(tmp_path / "one.pdf", 1, "The seal leaks at night.")
    ((x, y, width, height),) = drawn.boxes
    assert (height > width) == (turned in (90, 270))
    with PIL.Image.open(io.BytesIO(drawn.png)) as image:
        left, top, right, bottom = PIL.ImageOps.invert(image.convert("L")).getbbox()
    assert (x - 2, y - 2) <= (left, top)
    assert (right, bottom) <= (x + width + 2, y + height + 2)
    assert (right - left) * (bottom - top) > width * height / 2


@pytest.mark.slow
@table("cited, lines", list)
def test_lines_in_which_the_cited_text_begins_or_ends_have_boxes(tmp_path, cited, lines):
    canvas = Canvas(str(tmp_path / "one.pdf"), pagesize=(400, 600))
    written = ("Check the seal. It leaks at night.", "Oil the disc weekly, and", "more in summer.")
    for at, line in enumerate(written):
        canvas.drawString(50, 500 - 20 * at, line)
    canvas.save()
    drawn = draw_page(tmp_path / "one.pdf", 1, cited)
    assert [round((y * 600 / 1650 - 90) / 20) for _, y, *_ in drawn.boxes] == lines


@pytest.mark.slow
def test_lines_in_hebrew_and_arabic_have_boxes(tmp_path):
    for name, lines in (("he", HEBREW), ("ar", ARABIC)):
        glyphs = [glyph for row in placed(lines) for glyph in row]
        (tmp_path / f"{name}.pdf").write_bytes(pdf_of(glyphs))
        drawn = draw_page(tmp_path / f"{name}.pdf", 1, "\n".join(lines[:2]))
        assert len(drawn.boxes) == 2
        assert all(x + width > 400 and width > 100 for x, _, width, _ in drawn.boxes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [b"", b"no pdf", b"%PDF-1.7\n" + b"\0" * 1000, b"%PDF-1.4\n" + zlib.compress(b"x" * 9999)],
)
def test_a_broken_pdf_is_said_to_be_one(tmp_path, content):
    (tmp_path / "broken.pdf").write_bytes(content)
    with pytest.raises(DocumentNotFoundError, match=r"page 1 of broken.pdf cannot be drawn"):
        draw_page(tmp_path / "broken.pdf", 1)


def part(leg, contribution):
    return {"leg": leg, "engine": "e", "query": "q", "origin": "original", "rank": 2,
            "raw_score": 1.5, "weight": 1.0, "contribution": contribution}  # fmt: skip


def test_bars_follow_one_another_and_add_up_to_the_score():
    (group,) = score_bars(
        {"fusion": "rrf", "contributions": [part("lexical", 3.0), part("vector", 1.0)],
         "bonus": 1.0, "fused": 5.0, "recency": None, "rerank": None, "score": 5.0}
    )  # fmt: skip
    places = [(one["label"], one["x"], one["width"]) for one in group["bars"]]
    assert places == [
        ("lexical, rank 2", 0.0, 60.0),
        ("vector, rank 2", 60.0, 20.0),
        ("top-rank bonus", 80.0, 20.0),
    ]
    assert sum(one["value"] for one in group["bars"]) == group["total"] == 5.0
    (group,) = score_bars(
        {"fusion": "adaptive", "contributions": [part("lexical", 3.0)],
         "bonus": 1.0, "fused": 4.0, "recency": None, "rerank": None, "score": 4.0}
    )  # fmt: skip
    assert [one["label"] for one in group["bars"]] == ["lexical, rank 2", "words bonus"]
    assert "deviations" in group["bars"][0]["note"]


def test_bars_of_a_reranked_score_add_up_in_a_second_group():
    rerank = {"model": "m", "blend": "b", "rank": 4, "raw_score": None, "fused_part": 0.2,
              "rerank_part": 0.6}  # fmt: skip
    groups = score_bars(
        {"fusion": "rrf", "contributions": [part("vector", -1.0), part("lexical", 3.0)],
         "bonus": 0.0, "fused": 2.0, "recency": None, "rerank": rerank, "score": 0.8}
    )  # fmt: skip
    assert [(one["x"], one["width"]) for one in groups[0]["bars"]] == [(0.0, 33.33), (0.0, 100.0)]
    assert [one["value"] for one in groups[1]["bars"]] == [0.2, 0.6]
    assert groups[1]["total"] == 0.8


def test_every_result_has_its_bars_and_the_search_its_stages(asked, vault):
    page = asked(vault, "GET", "/?q=gradient").text
    assert page.count("<summary>Why here</summary>") == page.count('class="result"')
    assert re.search(r"lexical, rank 1<small>bm25", page)
    assert re.search(r'<tr class="ran"><th scope="row">fuse', page)
