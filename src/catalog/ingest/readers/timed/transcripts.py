"""Find transcripts in text, whose lines begin with times, and in JSON.

A section (the text between two headings) is a transcript if its heading says so and it has a timed
line; if the file's name says so and a third of its lines are timed; or if the document names its
recording and a third of its lines are timed, or brackets set off all its times. In any other text
two lines, and a third, must be timed, and their times rise from the first five minutes on.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from operator import itemgetter
from typing import Any, NamedTuple

from catalog.core.documents import Heading, ParsedDocument, Segment
from catalog.core.text import storable
from catalog.ingest.chunking.boundaries import Line, iter_lines
from catalog.ingest.chunking.cut import around, disjoint
from catalog.ingest.readers.base import choose_title
from catalog.ingest.readers.metadata import read_json, stated_levels
from catalog.ingest.readers.timed.cues import (
    CODE,
    MAX_SECONDS,
    Caption,
    build_transcript,
    find_speakers,
    is_name,
    parse_timecode,
    valid_seconds,
)
from catalog.ingest.readers.timed.frames import (
    find_medium,
    is_called_transcript,
    normalise_recording,
)

_LEAD = r"[ \t]{0,12}+(?:[-*+>][ \t]{1,4}+)?"
_TIME = (
    rf"(?P<open>[\[(])?[ \t]{{0,4}}(?P<start>{CODE})"
    rf"(?:[ \t]{{0,4}}(?P<dash>-{{1,3}}>|=>|→|-{{1,2}}|[–—])[ \t]{{0,4}}(?P<end>{CODE}))?"
    r"(?:[ \t]{0,4}(?P<close>[\])]))?"
)
_LEADING = re.compile(
    rf"{_LEAD}(?P<mark>\*\*|__|`)?{_TIME}(?P<shut>:?(?(mark)(?P=mark)|(?!)))?", re.ASCII
)
_SEPARATOR = re.compile(r"[ \t]*(?:(?:-{1,2}|[–—:|])(?=[ \t]|$))?[ \t]*")
_NAMED = re.compile(
    rf"{_LEAD}(?P<mark>\*\*|__|)(?P<name>[^\W_][^:()\[\]<>*|]{{0,59}}?):?(?P=mark)?:?"
    rf"(?P<gap>[ \t]{{0,8}}){_TIME}(?P<after>:?(?:\*\*|__):?|:|[ \t]*$|)"
)
_FROM = re.compile(
    r"From[ \t]{1,4}([^:\n]{1,60}?)(?:[ \t]{1,4}to[ \t][^:\n]{1,60})?[ \t]{0,4}:"
)  # Zoom's chat
_BARE_END = re.compile(r"(?![ \t]*(?:[ap]\.?m\b|uhr\b|h\b|o'clock)):?(?:[ \t]|$)", re.IGNORECASE)
_LINK = re.compile(r"\[[^\[\]]{1,200}\]\([^()\s]{1,200}\)[ \t]*")
# How a line of a chat or of a program's log goes on after its time, and a verse or a lap: 3:16 And
_LOGGED = re.compile(
    r"<[^<>]{1,40}> |-!- |\*\*\* |(?:\[[^\[\]]{1,60}\]:? )?\[?(?:[\w .-]{1,40}/)?"
    r"(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR)\b"
)
_RATIO = re.compile(r"[-+>*_`\s]*[1-9]:\d\d(?![:.,]?\d)[*_` ]+\S")
_MAX_HEAD = 200  # characters of a line within which its timecode stands
_TITLES = re.compile(
    r"(?:full |video |audio |auto(?:matic|-generated)? |timed )?(?:transcription|transcripts?"
    r"|subtitles?|(?:closed )?captions?|transkript(?:ion)?|untertitel|transcrição|transcripción"
    r"|trascrizione|legendas|subtítulos|sottotitoli|sous-titres)(?: \(.*\))?[:.]?"
)
_PAIRS = {("[", "]"), ("(", ")"), (None, None)}
_HALF_A_DAY = 12 * 3600.0


class LineTime(NamedTuple):
    start: float
    end: float | None
    cut_start: int  # of the time in the line, with its brackets or punctuation
    cut_end: int
    name: str | None  # of a speaker before it
    is_set_off: bool  # with brackets or an arrow


TimedCue = tuple[Segment, tuple[int, int]]  # the latter is its timecode in the text


def line_time(line: str) -> LineTime | None:
    """Return the time with which ``line`` (without its break) begins, or ``None``.

    A line with nothing but a link after its time is one of a list of frames or chapters, not a cue.
    """
    head = line[:_MAX_HEAD].replace("：", ":")
    match, name = _LEADING.match(head), None
    if match is not None:
        is_marked = match["open"] or match["shut"]
        if not is_marked and _BARE_END.match(head, match.end()) is None:
            return None
        first = "mark" if match["shut"] else "open" if match["open"] else "start"
        separator = _SEPARATOR.match(line, match.end())
        cut = match.start(first), separator.end() if separator else match.end()
    elif (match := _NAMED.match(head)) is not None:
        name = match["name"].strip()
        is_last = not match["after"].strip() and match.end() == len(head)
        is_named = match["mark"] or (is_name(name) and (match["after"] == ":" or is_last))
        if not is_named or not (match["open"] or (is_last and match["gap"])):
            return None
        cut = match.start("gap"), match.start("after")
    if match is None or (match["open"], match["close"]) not in _PAIRS:
        return None
    start, end = parse_timecode(match["start"]), parse_timecode(match["end"] or "")
    if start is None or _LINK.fullmatch(line, cut[1]):
        return None
    is_set_off = match["open"] is not None or (match["dash"] or "-")[-1] in ">→"
    if name is None and (speaker := _FROM.match(line, cut[1])):
        name = " ".join(speaker[1].split())
    return LineTime(start, end, *cut, name, is_set_off)


def find_cues(
    document: ParsedDocument,
    headings: Sequence[Heading],
    frames: Sequence[Segment],
    *,
    is_declared: bool,
    length: float | None,
) -> tuple[list[TimedCue], str | None]:
    """Return the cues of every transcript in the body; else why a text that looks like one is none.

    ``is_declared``: the document names the file from which it was made. A cue lasts until the next
    one begins, the last one to ``length`` or 5 s.
    """
    text, is_called = document.text, is_called_transcript(document.path)
    excluded = disjoint([*((frame.start, frame.end) for frame in frames), *document.atomic])
    lines = [
        (line, line_time(text[line.start : line.end]))
        for line in iter_lines(text, document.body_start)
        if text[line.start : line.end].strip() and not around(excluded, line.start + 1)
    ]
    cues: list[TimedCue] = []
    timed_lines = all_lines = 0
    is_doubtful = is_called
    for begin, end, name in _sections(document, headings):
        found = lines[bisect_left(lines, ((begin,),)) : bisect_left(lines, ((end,),))]
        timed = [(line, time) for line, time in found if time is not None]
        timed_lines, all_lines = timed_lines + len(timed), all_lines + len(found)
        if timed and timed[0][1].name:  # a header above the speakers
            found = found[found.index(timed[0]) :]
        is_dense = 3 * len(timed) >= len(found)
        if name or (is_called and is_dense):
            is_transcript = True
        elif is_declared:
            is_transcript = is_dense or all(time.is_set_off for _, time in timed)
        else:
            is_transcript = is_dense and len(timed) > 1 and _is_recording(text, timed)
        if is_transcript and timed:
            cues.extend(_build_cues(text, timed, end, excluded, length))
        is_doubtful |= (is_dense and len(timed) > 1) or (bool(found) and "trans" in name)
    if cues or not is_doubtful:
        return cues, None
    return [], (
        f"read as text, not as a transcript: {timed_lines} of {all_lines} lines begin with a time; "
        "if these are times of a recording, put 'transcript' in the file's name"
    )


def _sections(
    document: ParsedDocument, headings: Sequence[Heading]
) -> Iterator[tuple[int, int, str]]:
    level, name = 0, ""
    ends = [*(heading.start for heading in headings), len(document.text)]
    yield document.body_start, max(document.body_start, ends[0]), ""
    for heading, end in zip(headings, ends[1:], strict=True):
        if not 0 < level < heading.level:
            name = heading.title.casefold().strip()
            level, name = (heading.level, name) if _TITLES.fullmatch(name) else (0, "")
        yield heading.end, end, name


def _is_recording(text: str, timed: Sequence[tuple[Line, LineTime]]) -> bool:
    times = [time.start for _, time in timed]
    falls = sum(after < before for before, after in pairwise(times))
    logged = sum(bool(_LOGGED.match(text, line.start + it.cut_end, line.end)) for line, it in timed)
    is_log = 2 * logged > len(timed) or times[-1] - times[0] > _HALF_A_DAY
    is_ratio = _RATIO.match(text, timed[0][0].start, timed[0][0].end) is not None
    return times[0] <= 300 and 10 * falls < len(times) and not is_log and not is_ratio


def _build_cues(
    text: str,
    timed: Sequence[tuple[Line, LineTime]],
    section_end: int,
    excluded: Sequence[tuple[int, int]],
    length: float | None,
) -> Iterator[TimedCue]:
    speakers = [time.name for _, time in timed]
    if not any(speakers):
        speakers = find_speakers([text[line.start + it.cut_end : line.end] for line, it in timed])
    ends = [*(line.start for line, _ in timed[1:]), section_end]
    last = timed[-1][1].start
    last = min(length, last + 60.0) if length and length > last else last + 5.0
    starts = [*(time.start for _, time in timed[1:]), last]
    for (line, time), end, following, speaker in zip(timed, ends, starts, speakers, strict=True):
        at = bisect_left(excluded, (line.start,))
        end = min([end, *(span[0] for span in excluded[at : at + 1])])
        is_ranged = time.end is not None and time.end >= time.start
        times = time.start, time.end if is_ranged else max(time.start, following)
        cut = line.start + time.cut_start, line.start + time.cut_end
        yield Segment(line.start, end, "audio_transcript", *times, speaker), cut


_LISTS = "utterances segments snippets transcript transcription chunks items words"
_VAGUE = ("chunks", "items", "words")  # lists that may also be notes on another text
_TEXTS = ("text", "transcript", "content", "punctuated_word", "word")
_FILE_KEYS = ("media_file", "source_file", "audio_path", "video", "audio", "file", "filename")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8}){0,3}")
_VIDEO_ID = re.compile(r"[A-Za-z0-9_-]{11}")
_WORDS_OF_A_CUE = 12


def read_transcript_json(text: str, path: str) -> ParsedDocument | None:
    """Return the JSON's transcript with a line for each cue, ``None`` for other JSON.

    A transcript is a list of objects of which half have text and a start. Of several lists the one
    with the most text counts; ``items`` or ``words`` beside a longer text are none. Times are
    milliseconds if the last one passes twelve hours or twice the stated length.
    """
    try:
        data = read_json(text)
    except (ValueError, RecursionError):
        return None
    top: Mapping[str, Any] = data if isinstance(data, Mapping) else {"items": data}
    captions = max((_read_list(*found, top) for found in _lists(top)), key=_size, default=[])
    names = [top[key] for key in _FILE_KEYS if isinstance(top.get(key), str)]
    medium = find_medium(path, names[0] if names else None)
    transcript, segments, places = build_transcript(captions, medium.transcript_modality)
    if not segments:
        return None
    video = next((it for it in (top.get("video_id"), top.get("id")) if isinstance(it, str)), "")
    address = f"https://www.youtube.com/watch?v={video}" if _VIDEO_ID.fullmatch(video) else None
    language = str(top.get("language_code") or top.get("language"))
    fields = {
        "source_url": address or top.get("webpage_url") or top.get("source_url"),
        "channel": top.get("channel") or top.get("uploader"),
        "upload_date": top.get("upload_date"),
        "duration": top.get("duration", top.get("audio_duration")),
        "language": language.replace("_", "-") if _LANGUAGE.fullmatch(language) else None,
    }
    return ParsedDocument(
        path=path,
        text=transcript,
        title=choose_title(medium.key, top.get("title")),
        file_type=medium.file_type or "video",
        source_type="transcript",
        metadata={**medium.metadata(), **normalise_recording({**fields, **stated_levels(top)})},
        segments=segments,
        places=places,
    )


def _lists(top: Mapping[str, Any]) -> Iterator[tuple[list[object], int | None]]:
    """Yield lists that may be transcripts; a vague one with the length of the text beside it."""
    results = _map(top.get("results"))
    for holder in (top, results, _map(_map(results.get("channels")).get("alternatives"))):
        texts = [(key, it) for key, it in holder.items() if isinstance(it, str) and " " in it]
        sizes = [len(it) for key, it in texts if key in _TEXTS or len(it) > 200]
        for name in _LISTS.split():
            if isinstance(items := holder.get(name), list):
                yield items, max(sizes, default=0) if name in _VAGUE else None


def _maps(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else next(iter(_maps(value)), {})


def _size(captions: Sequence[Caption]) -> int:
    return sum(len(line) for caption in captions for line in caption.lines)


def _read_list(items: list[object], beside: int | None, top: Mapping[str, Any]) -> list[Caption]:
    """Return the cues of a list in seconds; empty if it is no transcript."""
    found = [caption for item in _maps(items) for caption in _read_item(item)]
    times = [time for one in found for time in (one.start, one.end) if time is not None]
    timed = sum(one.start is not None for one in found)
    if not timed or 2 * timed < len(items) or (beside or 0) > 1.5 * _size(found) + len(found):
        return []
    length = valid_seconds(top.get("audio_duration", top.get("duration")))
    if max(times) > (2 * length if length else _HALF_A_DAY):  # milliseconds
        found = [
            it._replace(start=it.start and it.start / 1000, end=it.end and it.end / 1000)
            for it in found
        ]
    if beside is None or any(" " in " ".join(one.lines) for one in found):
        return found
    labels = _map(_map(top.get("results")).get("speaker_labels")).get("segments")
    turns = [
        (_read_time(it.get("start_time")) or 0.0, it.get("speaker_label")) for it in _maps(labels)
    ]
    for number, word in enumerate(found if turns else ()):
        at = bisect_right(turns, word.start or 0.0, key=itemgetter(0))
        if at and word.start is not None:
            found[number] = word._replace(speaker=str(turns[at - 1][1]))
    return list(_join_words(found, _WORDS_OF_A_CUE))


def _join_words(words: Sequence[Caption], most: int) -> Iterator[Caption]:
    """Yield cues of up to ``most`` words, which end after sentences and before another speaker."""
    group: list[Caption] = []
    line = ""
    for word, following in zip_longest(words, words[1:]):
        group.append(word)
        line += f" {word.lines[0]}" if _is_word(word) else word.lines[0]
        speaker = next((one.speaker for one in group if one.speaker), None)
        is_full = line.endswith((".", "?", "!")) or len(group) >= most
        is_turn = following is not None and following.speaker not in (None, speaker)
        if following is None or is_turn or (is_full and _is_word(following)):
            start = next((one.start for one in group if one.start is not None), None)
            end = next((one.end for one in reversed(group) if one.end is not None), None)
            yield Caption((line.strip(),), start, end, speaker)
            group, line = [], ""


def _is_word(word: Caption) -> bool:
    return any(map(str.isalnum, word.lines[0]))


def _read_item(item: Mapping[str, Any]) -> Iterator[Caption]:
    """Yield the cue of an item, or one for each speaker of its words."""
    words = _maps(item.get("words"))
    if len({str(word["speaker"]) for word in words if word.get("speaker")}) > 1:
        spoken = [one for word in words for one in _read_item({**word, "words": None})]
        yield from _join_words(spoken, len(spoken))
        return
    texts = [one.get(key) for one in (item, _map(item.get("alternatives"))) for key in _TEXTS]
    text = next((one for one in texts if isinstance(one, str) and one.strip()), "")
    if lines := tuple(" ".join(line.split()) for line in text.splitlines() if line.strip()):
        told = item.get("speaker")
        name = "" if told is None else storable(" ".join(str(told).split())[:80].strip())
        is_label = name.isdecimal() or (len(name) == 1 and name.isalpha())
        stamp = item.get("timestamp")
        if not isinstance(stamp, list) or len(stamp) != 2:
            stamp = [item.get(at, item.get(f"{at}_time")) for at in ("start", "end")]
        start, end, lasting = map(_read_time, (*stamp, item.get("duration")))
        if end is None and start is not None and lasting is not None:
            end = round(start + lasting, 6)
        yield Caption(lines, start, end, f"Speaker {name}" if is_label else name or None)


def _read_time(value: object) -> float | None:
    """Return the seconds of a clock, or a number that may still be milliseconds."""
    if isinstance(value, str) and ":" in value:
        return parse_timecode(value)
    return valid_seconds(value, 1000 * MAX_SECONDS)
