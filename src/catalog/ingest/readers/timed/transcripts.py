"""Find transcripts in text, whose lines begin with times, and in JSON.

A section (the text below a heading) is a transcript if its heading says so; if a third of its lines
are timed and the document is called a transcript or names its recording; or if it names it and all
times are set off. In other text two lines, and a third, must be timed, from the first five minutes
on, or the first one if words follow as in ``3:16 For God``.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from operator import itemgetter
from typing import Any, NamedTuple

from catalog.core.documents import Heading, ParsedDocument, Segment
from catalog.core.text import storable
from catalog.ingest.chunking.boundaries import Line, iter_lines
from catalog.ingest.chunking.cut import Span, around, disjoint
from catalog.ingest.readers.base import choose_title
from catalog.ingest.readers.metadata import read_json, stated_levels
from catalog.ingest.readers.timed import cues, frames
from catalog.ingest.readers.timed.cues import CODE, Caption, parse_timecode, valid_seconds

_LINE = re.compile(  # tabs are blanks
    rf"""(?xi)\ {{0,12}}+(?:[-*+>]\ {{1,4}}+)?(?P<mark>\*\*|__|`)?
    (?:(?P<name>[^\W\d_][^:()\[\]<>*|]{{0,59}}?):?(?:(?P=mark):?)?(?P<gap>\ {{1,8}}|(?=[\[(])))?
    (?>(?P<time>(?P<open>\[|(?P<round>\())?\ {{0,4}}(?P<start>{CODE})
        (?:\ *(?P<dash>-{{1,3}}>|=>|→|--?|[–—])\ *(?P<end>{CODE}))?(?(open)\ *(?(round)\)|\]))))
    (?(name)(?=\ *$|(?(open)(?(mark)|:)|(?!)))  # Anna (00:01:05): …
        |(?:(?P<shut>:?(?P=mark))|(?(open)|(?=:?(?:\ |$))(?!\ *(?:[ap]\.?m\b|uhr\b|h\b|o'clock))))
        \ *(?:(?:--?|[–—:|])(?=\ |$))?\ *  # and perhaps as in a chat saved by Zoom
        (?=(?-i:From)\ +(?P<from>[^:]{{1,60}}?)(?:\ +to\ [^:]{{1,60}})?\ *:|))"""
)
_LINK = re.compile(r"\[[^\[\]]{1,200}\]\([^()\s]{1,200}\)[ \t]*")  # alone after a time: a chapter
_LOGGED = re.compile(r"<[^<>]{1,40}> |-!- |\W*(?:[\w .-]{1,40}/)?(?:DEBUG|INFO|WARN|ERROR)\b")
_TITLES = re.compile(
    r"(?i)(?:full |video |audio |auto(?:matic|-generated)? |timed )?(?:trans[ck]ript(?:ion|s)?"
    r"|subtitles?|(?:closed )?captions?|untertitel|transcrição|transcripción|trascrizione"
    r"|legendas|subtítulos|sottotitoli|sous-titres)(?: \(.*\))?[:.]?"
)


class LineTime(NamedTuple):
    start: float
    end: float | None
    cut_start: int  # of the time in the line, with its brackets or punctuation
    cut_end: int
    name: str | None  # of a speaker
    is_set_off: bool  # by brackets, an arrow or a name, or alone on its line


def line_time(line: str) -> LineTime | None:
    """Return the time with which ``line`` (without its break) begins, or ``None``."""
    match = _LINE.match(line[:200].replace("：", ":").replace("\t", " "))
    if match is None or (start := parse_timecode(match["start"])) is None:
        return None
    name = " ".join((match["name"] or match["from"] or "").split())
    if match["name"] and not match["mark"] and not cues.is_name(name):
        return None
    cut = match.start("gap" if match["name"] else "mark" if match["shut"] else "time"), match.end()
    if _LINK.fullmatch(line, cut[1]):
        return None
    is_alone = not line[cut[1] :].strip() or (match["dash"] or "-")[-1] in ">→"
    end, is_set_off = parse_timecode(match["end"] or ""), bool(match["open"] or name or is_alone)
    return LineTime(start, end, *cut, name or None, is_set_off)


TimedCue = tuple[Segment, Span]  # the latter is its timecode in the text
_Timed = Sequence[tuple[Line, LineTime]]


def find_cues(
    document: ParsedDocument, described: Sequence[Segment], *, is_named: bool, length: float | None
) -> tuple[list[TimedCue], str | None]:
    """Return the cues of every transcript in the body, or the reason why none was read.

    ``is_named``: the document names its recording. The last cue lasts to ``length`` or 5 s.
    """
    text, at, end = document.text, document.body_start, len(document.text)
    apart: list[Segment | Heading] = [*described, *document.headings]
    excluded = disjoint([*((one.start, one.end) for one in apart), *document.atomic])
    lines = [
        (line, line_time(text[line.start : line.end]))
        for line in iter_lines(text, at)
        if text[line.start : line.end].strip() and not around(excluded, line.start + 1)
    ]
    found, level = list[TimedCue](), 0  # of the heading of a transcript
    is_doubtful = is_called = frames.is_called_transcript(document.path)
    heads = [Heading(at, at, 1, ""), *document.headings, Heading(end, end, 1, "")]
    for heading, following in pairwise(heads):
        if not 0 < level < heading.level:
            level = heading.level if _TITLES.fullmatch(heading.title.strip()) else 0
        first, last = (bisect_left(lines, ((at,),)) for at in (heading.end, following.start))
        timed = [(line, time) for line, time in lines[first:last] if time is not None]
        if timed and timed[0][1].name:  # without a header above the speakers
            first = lines.index(timed[0], first)
        is_dense = 3 * len(timed) >= last - first
        is_list = is_dense and len(timed) > 1
        is_told = level > 0 or (is_dense and (is_called or is_named))
        is_told |= is_named and all(time.is_set_off for _, time in timed)
        is_told |= is_list and _is_recording(text, timed)
        is_said = any(text[line.start + it.cut_end : line.end].strip() for line, it in timed)
        if timed and is_told and (is_said or last - first > len(timed)):  # else a list of times
            found += _build_cues(text, timed, following.start, excluded, length)
        is_doubtful |= is_list or (level > 0 < last - first and "trans" in heading.title.lower())
    if found or not is_doubtful:
        return found, None
    count = f"{sum(time is not None for _, time in lines)} of {len(lines)} lines begin with a time"
    advice = "if these are times of a recording, put 'transcript' in the file's name"
    return [], f"read as text, not as a transcript: {count}; {advice}"


def _is_recording(text: str, timed: _Timed) -> bool:
    times = [time.start for _, time in timed]
    falls = sum(after < before for before, after in pairwise(times))
    logged = sum(bool(_LOGGED.match(text, line.start + it.cut_end, line.end)) for line, it in timed)
    is_early = times[0] <= (300 if timed[0][1].is_set_off else 59)
    is_log = 2 * logged > len(times) or times[-1] - times[0] > 12 * 3600
    return is_early and 10 * falls < len(times) and not is_log


def _build_cues(
    text: str, timed: _Timed, end: int, excluded: Sequence[Span], length: float | None
) -> Iterator[TimedCue]:
    speakers = [time.name for _, time in timed]
    if not any(speakers):
        speakers = cues.find_speakers([text[at.start + it.cut_end : at.end] for at, it in timed])
    last = timed[-1][1].start
    last = max(last + 5.0, min(length or 0.0, last + 60.0))
    ends = [*((line.start, time.start) for line, time in timed[1:]), (end, last)]
    for (line, time), (end, until), speaker in zip(timed, ends, speakers, strict=True):
        at = bisect_left(excluded, (line.start,))
        end = min([end, *(span[0] for span in excluded[at : at + 1])])
        is_ranged = time.end is not None and time.end >= time.start
        times = time.start, time.end if is_ranged else max(time.start, until)
        cut = line.start + time.cut_start, line.start + time.cut_end
        yield Segment(line.start, end, "audio_transcript", *times, speaker), cut


_LISTS = "utterances segments snippets transcript transcription chunks items words"
_VAGUE = ("chunks", "items", "words")  # perhaps notes on another text
_TEXTS = ("text", "transcript", "content", "punctuated_word", "word")
_FILE_KEYS = ("media_file", "source_file", "audio_path", "video", "audio", "file", "filename")
_WORD = re.compile(r"\W*+\w")


def read_transcript_json(text: str, path: str) -> ParsedDocument | None:
    """Return the JSON's transcript with a line for each cue, ``None`` for other JSON.

    A transcript is a list of objects, half of them with text and a start. Of several lists the one
    with the most text counts; ``items`` or ``words`` do not if another text is longer. Times are
    milliseconds if the last one passes twelve hours or twice the stated length.
    """
    try:
        data = read_json(text)
    except (ValueError, RecursionError):
        return None
    top: Mapping[str, Any] = data if isinstance(data, Mapping) else {"items": data}
    _, captions = max(_lists(top), key=itemgetter(0), default=(0, []))
    names = [top[key] for key in _FILE_KEYS if isinstance(top.get(key), str)]
    _, kind, medium = frames.find_medium(path, *names[:1])
    transcript, segments, places = cues.build_transcript(captions, kind)
    if not segments:
        return None
    fields = {key: top.get(key) for key in ("channel", "upload_date", "source_url", "duration")}
    fields |= {"duration": top["audio_duration"]} if "audio_duration" in top else {}
    video, language = top.get("video_id"), str(top.get("language_code") or top.get("language"))
    if isinstance(video, str) and re.fullmatch(r"[A-Za-z0-9_-]{11}", video):
        fields["source_url"] = f"https://www.youtube.com/watch?v={video}"
    if re.fullmatch(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8}){0,3}", language):
        fields["language"] = language.replace("_", "-")
    title = choose_title(str(medium["media"]), top.get("title"))
    metadata = {**medium, **frames.normalise_recording({**fields, **stated_levels(top)})}
    about = path, transcript, title, kind or "video", "transcript", metadata
    return ParsedDocument(*about, segments=segments, places=places)


def _lists(top: Mapping[str, Any]) -> Iterator[tuple[int, list[Caption]]]:
    """Yield the cues of each list with their length, unless another text is longer by half."""
    results = _map(top.get("results"))
    for holder in (top, results, _map(_map(results.get("channels")).get("alternatives"))):
        texts = [(key, it) for key, it in holder.items() if isinstance(it, str) and " " in it]
        beside = max((len(it) for key, it in texts if key in _TEXTS or len(it) > 200), default=0)
        for name in _LISTS.split():
            captions = _read_list(holder.get(name), top)
            size = sum(len(line) for caption in captions for line in caption.lines)
            if name not in _VAGUE or beside <= 1.5 * size:
                yield size, captions


def _maps(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else next(iter(_maps(value)), {})


def _read_list(items: object, top: Mapping[str, Any]) -> list[Caption]:
    """Return the cues of a list in seconds, those of single words joined; none of another list."""
    found = [caption for item in _maps(items) for caption in _read_item(item)]
    times = [time for one in found for time in (one.start, one.end) if time is not None]
    timed = sum(one.start is not None for one in found)
    if not timed or not isinstance(items, list) or 2 * timed < len(items):
        return []
    length = valid_seconds(top.get("audio_duration", top.get("duration")))
    if max(times) > (2 * length if length else 12 * 3600):  # milliseconds
        for at, one in enumerate(found):
            start, end = (time and time / 1000 for time in (one.start, one.end))
            found[at] = one._replace(start=start, end=end)
    if any(" " in " ".join(one.lines) for one in found):
        return found
    labels = _maps(_map(_map(top.get("results")).get("speaker_labels")).get("segments"))
    turns = [(valid_seconds(it.get("start_time")) or 0.0, it.get("speaker_label")) for it in labels]
    for at, one in enumerate(found if turns else ()):
        if one.start is not None:
            turn = bisect_right(turns, one.start, key=itemgetter(0))
            found[at] = one._replace(speaker=str(turns[max(0, turn - 1)][1]))
    return list(_join_words(found))


def _join_words(words: Sequence[Caption]) -> Iterator[Caption]:
    """Yield cues of up to 12 words, which end after sentences and before another speaker."""
    group = list[Caption]()
    for word, following in zip_longest(words, words[1:]):
        group.append(word)
        speaker = next((one.speaker for one in group if one.speaker), None)
        is_full = word.lines[0].endswith((".", "?", "!")) or len(group) >= 12
        is_turn = following is not None and following.speaker not in (None, speaker)
        if following is None or is_turn or (is_full and _WORD.match(following.lines[0])):
            spoken = [f" {it}" if _WORD.match(it) else it for it in (one.lines[0] for one in group)]
            end = max(filter(None, (one.end for one in group)), default=None)
            yield Caption(("".join(spoken).strip(),), group[0].start, end, speaker)
            group = []


def _read_item(item: Mapping[str, Any]) -> Iterator[Caption]:
    """Yield the cue of an item, or one for each speaker of its words."""
    words = _maps(item.get("words"))
    if len({str(word["speaker"]) for word in words if word.get("speaker")}) > 1:
        yield from _join_words([one for it in words for one in _read_item({**it, "words": None})])
        return
    texts = [one.get(key) for one in (item, _map(item.get("alternatives"))) for key in _TEXTS]
    text = next((one for one in texts if isinstance(one, str) and one.strip()), "")
    told = "" if item.get("speaker") is None else str(item["speaker"])
    name = storable(" ".join(told.split())[:80].strip())
    name = f"Speaker {name}" if name.isdecimal() or (len(name) == 1 and name.isalpha()) else name
    stamp = item.get("timestamp")
    if not isinstance(stamp, list) or len(stamp) != 2:
        stamp = [item.get(at, item.get(f"{at}_time")) for at in ("start", "end")]
    start, end, lasting = (
        parse_timecode(it)
        if isinstance(it, str) and ":" in it
        else valid_seconds(it, 1000 * cues.MAX_SECONDS)
        for it in (*stamp, item.get("duration"))
    )
    if end is None and start is not None and lasting is not None:
        end = round(start + lasting, 6)
    if lines := tuple(" ".join(line.split()) for line in text.splitlines() if line.strip()):
        yield Caption(lines, start, end, name or None)
