"""What docs/reference/recordings.md says of recordings is so."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from catalog.core.settings import load_settings
from catalog.ingest.chunking import DocumentChunker
from catalog.ingest.readers.text import PlainTextReader
from counters import WordCounter

ROOT = Path(__file__).parents[2]
TIME = (ROOT / "docs" / "reference" / "recordings.md").read_text(encoding="utf-8")
NAMES = [
    (name, says)
    for names, says in re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|$", TIME, re.MULTILINE)
    for name in re.findall(r"`([^`]+)`", names)
]


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
    (listed,) = re.findall(r"are times: (.*?),\sthe same in bold", TIME, re.DOTALL)
    for beginning in re.findall(r"`([^`]+)`", listed):
        doc = PlainTextReader().parse(f"{beginning} a\n{beginning} b\n", "talk.transcript.txt")
        assert [each.modality for each in doc.segments] == ["audio_transcript"] * 2, beginning


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
