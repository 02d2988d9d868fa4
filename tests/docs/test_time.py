"""What README.md and docs/time.md say of recordings is so."""

import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from catalog.core.settings import load_settings
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.readers.plain import PlainTextReader
from catalog.interfaces.cli import main
from catalog.models import packaged
from counters import WordCounter

ROOT = Path(__file__).parents[2]
TIME = (ROOT / "docs" / "time.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = [
    (name, says)
    for names, says in re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|$", TIME, re.MULTILINE)
    for name in re.findall(r"`([^`]+)`", names)
]
SUBTITLES = """1
00:00:50,000 --> 00:01:04,000
Before that we look at the activations of each layer.

2
00:01:05,000 --> 00:01:18,000
Then we introduce batch normalisation.

3
00:01:18,000 --> 00:01:30,000
ANNA: So does the mean go to zero?
"""


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a line of a page: what it prints on standard output, and on standard error."""

    def run_line(line):
        monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert not ended.value.code, err
        return out, err

    return run_line


@pytest.mark.parametrize(("name", "says"), NAMES)
def test_a_name_of_the_page_tells_the_second_that_it_says(name, says):
    doc = PlainTextReader().parse("# BatchNorm\n", f"lecture_frames/{name}.txt")
    seconds = [each.time_start for each in doc.segments]
    if says.startswith("none"):
        assert seconds == []
        assert doc.untimed
    else:
        (second,) = seconds
        assert int(second) in (72, 12, 3723)


def test_every_beginning_of_a_line_on_the_page_is_a_time():
    (listed,) = re.findall(r"are times: (.*?), the same in bold", TIME, re.DOTALL)
    for beginning in re.findall(r"`([^`]+)`", listed):
        doc = PlainTextReader().parse(f"{beginning} a\n{beginning} b\n", "talk.txt")
        assert [each.modality for each in doc.segments] == ["video_transcript"] * 2, beginning
    (listed,) = re.findall(r"\n(`65s`.*?) are, too,", TIME)
    for beginning in re.findall(r"`([^`]+)`", listed):
        text = f"{beginning} a\n{beginning} b\n"
        assert PlainTextReader().parse(text, "talk.txt").segments == (), beginning
        for path in ("talk.transcript.txt", "lecture.mp4.txt"):
            assert len(PlainTextReader().parse(text, path).segments) == 2, beginning


def test_transcripts_of_the_projects_preset_are_as_large_as_the_page_and_the_preset_say():
    rag = load_settings(preset="projects").settings.rag_v2
    said = [
        f"[{at // 60:02}:{at % 60:02}] {'AB'[at // 40 % 2]}NNA: {'so ' * 9}on." for at in range(900)
    ]
    doc = PlainTextReader().parse("\n".join(said), "call.transcript.txt")
    spans = (
        DocumentChunker(
            WordCounter(),
            chunk_size=rag.chunk_size,
            chunk_overlap=rag.chunk_overlap,
            min_size=rag.chunk_min_size,
            window_seconds=rag.transcript_window_seconds,
        )
        .cut(doc)
        .spans
    )
    assert len(spans) > 8
    for span in spans:
        assert 700 <= span.tokens <= 1000
        assert {cue.speaker for cue in span.cues} <= {"ANNA", "BNNA"}
        assert span.locator.time_start is not None
    for before, after in pairwise(spans):
        assert 100 <= len(doc.text[after.start : before.end].split()) <= 150


@pytest.mark.skipif(
    packaged.locate(packaged.BGE_SMALL) is None,
    reason="the packaged bge-small model is not installed (pip install '.[offline]')",
)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other Pythons have other pages")
@pytest.mark.parametrize("heading", ["# Visual Frame at 01:12", "# Slide 7", ""])
def test_the_example_of_the_readme_comes_out_as_it_shows(run, tmp_path, monkeypatch, heading):
    monkeypatch.setenv("HOME", str(tmp_path))
    frames = tmp_path / "vault" / "talks" / "lecture_frames"
    frames.mkdir(parents=True)
    (frames.parent / "lecture.srt").write_text(SUBTITLES)
    (frames.parent / "lecture.mp4").write_bytes(b"\0\0\0\x20ftypisom\0\0")
    (frames / "frame_01m12s.md").write_text(f"{heading}\n\nSlide: BatchNorm formula\n")
    for name in ("assert", "break", "for", "return", "with", "raise"):
        (tmp_path / "vault" / f"{name}.rst").write_text(topics[name])
    (block,) = re.findall(r"```\n(catalog index build ~/vault.*?)```", README, re.DOTALL)
    build, search, *shown = [line for line in block.splitlines() if line]
    out, err = run(build.replace("~", str(tmp_path)))
    assert "7 documents (8 texts; those of one recording are one document), 10 passages, all" in out
    assert "as text" not in err
    out, _ = run(search)
    lines = [line.replace(f"{heading[2:]} Slide: ", "Slide: ") for line in out.splitlines()]
    assert lines[: len(shown)] == shown
