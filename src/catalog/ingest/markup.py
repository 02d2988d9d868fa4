"""Leaving out what is no prose: markup inside lines, and tables of contents."""

from __future__ import annotations

import re
from collections.abc import Iterator

from catalog.ingest.chunking.boundaries import END_MARK

HEAD_CHARS = 9_000  # of a text, read before anything is left out

_MOST_CONTENTS = 30
_DOTS = r"\.(?<!\.\.)(?<!\. \.)(?:(?: \.){3,}+|(?: ?\.){3,}+[ \t]*+[\divxlc]{1,6})"
_LEADER = re.compile(rf"{_DOTS}[ \t]*$", re.MULTILINE)
_PAGE_NUMBER = re.compile(r"\s\d{1,4}\s{0,2}\Z")
_ENTRY_NUMBER = re.compile(r"\s*(?:\d{1,3}|[A-Z]|[IVX]{1,5})(?:\.\d{1,3}){0,4}\.?\s+\S")
_BARE_NUMBER = re.compile(r"\s*[\divxlc]{1,6}\s*\Z")
_LONGEST_ENTRY = 120
_FEWEST_ENTRIES = 3


def skip_first_contents(text: str, begin: int) -> tuple[str, int]:
    """Return what stands before a table of contents with dotted lines, and where that table ends.

    Without one in the beginning of the text it is ``""`` and ``begin``.
    """
    first = _LEADER.search(text, begin, begin + HEAD_CHARS)
    if first is None:
        return "", begin
    end = first.end()
    for _ in range(_MOST_CONTENTS):
        leaders = _LEADER.finditer(text, end, end + HEAD_CHARS // 3)
        last = max((leader.end() for leader in leaders), default=end)
        if last == end:
            break
        end = last
    return text[begin : first.end()], end


def drop_contents(lines: list[str]) -> Iterator[str]:
    """Yield the lines but those of a table of contents: dotted ones, and runs of numbered ones.

    A run is lines that end in a page number or begin with the number of a heading: at least
    three, one of them both, or one of them dotted.
    """
    run: list[str] = []
    kinds: list[int] = []
    for line in lines:
        kind = _rate_entry(line) if line.strip() else 0
        if kind or not line.strip():
            run.append(line)
            kinds.append(kind)
        else:
            yield from _drop_if_contents(run, kinds)
            run, kinds = [], []
            yield line
    yield from _drop_if_contents(run, kinds)


def _drop_if_contents(run: list[str], kinds: list[int]) -> list[str]:
    """Return the run of lines, or one blank line if it is a table of contents."""
    entries = sum(kind > 0 for kind in kinds)
    best = max(kinds, default=0)
    return [""] if best > 2 or (best > 1 and entries >= _FEWEST_ENTRIES) else run


def _rate_entry(line: str) -> int:
    """Rate how like a line is to one of a table of contents: 3 dotted, 2 likely, 1 maybe, 0 not."""
    if ("..." in line or ". ." in line) and _LEADER.search(line):
        return 3
    if len(line) > _LONGEST_ENTRY:
        return 0
    if len(line) < 12 and _BARE_NUMBER.match(line):
        return 1
    is_numbered = _ENTRY_NUMBER.match(line) is not None
    has_page = line[-3:].rstrip()[-1:].isdigit() and _PAGE_NUMBER.search(line) is not None
    if is_numbered and has_page:
        return 2
    return int(has_page or (is_numbered and not END_MARK.search(line[-3:])))


TIME = r"(?:\d{1,2}:)?\d{1,2}:\d\d(?:[.,]\d{1,3})?"
_TAG_NAMES = (
    "a|abbr|b|big|blockquote|body|br|button|c|center|cite|code|dd|details|div|dl|dt|em|figure|font"
    "|form|h[1-6]|head|hr|html|i|iframe|img|input|kbd|lang|li|link|meta|nav|ol|p|picture|pre|q|rt"
    "|ruby|s|samp|script|section|small|source|span|strong|style|sub|summary|sup|svg|table|tbody|td"
    "|th|thead|title|tr|tt|u|ul|v|var|video"
)
_CLOSING = ".,;:!?)"
_TAG = re.compile(
    rf"""<(?=[\w/?!])(?:
        /[A-Za-z][\w:.-]{{0,60}}\s?
      | (?:{_TAG_NAMES})(?:[\s./][^<>\n]{{0,300}})?
      | [A-Za-z][\w:.-]{{0,60}}(?:\s[^<>]{{0,300}})?(?:=["'][^<>]{{0,300}}|/)
      | [A-Za-z][\w.-]{{0,30}}:[\w.-]{{1,60}}
      | [?!][A-Za-z][^<>]{{0,300}}
      | {TIME}
    )>""",
    re.VERBOSE | re.IGNORECASE,
)
IMAGE = re.compile(r"!\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
_LINK = re.compile(
    r"""\[(?<![\w\])]\[)([^\[\]]+)\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)?(?:\s+["'][^()]*)?\)"""
)
_REFERENCE = re.compile(r"\[(?<![\w\])]\[)(?=\S)([^\[\]]+)(?<=\S)\] ?\[[^\[\]]*\]")
_NAMED_LINK = re.compile(r"`([^`<>\s][^`<>]{0,300}?)(?:\s{0,4}<[^<>`]{1,300}>)?`__?(?!\w)")
_ROLE = re.compile(r":[a-z][\w:+-]{0,30}:(?=`)")
_EMPHASIS = re.compile(  # of whole words alone; what is code stays as it is
    r"""(?=[`*_])(?:
        (?<![\w`\\])(?P<code>`{1,2})(?=\S)(?P<in_code>[^`]{1,300})(?<=\S)(?P=code)(?![\w`])
      | (?<![\w*\\])(?P<stars>\*{1,3})(?=[\w"'“‘(\[`])(?P<in_stars>[^*]{1,300})
        (?<=[\w"'”’)\]`.,:;!?。！？])(?P=stars)(?![\w*])
      | (?<![\w\\])(?P<lines>_{1,2})(?=[^\W_])(?P<in_lines>[^_\s]{1,99}\s[^_]{1,300})
        (?<=[^\s_])(?P=lines)(?!\w))""",
    re.VERBOSE,
)
_WIDE = "[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]"
_WRAPPED = re.compile(rf"(?<={_WIDE}{{16}})[ \t]*\n\s*(?={_WIDE})")  # within a wide paragraph


def strip_markup(text: str, has_references: bool = False) -> str:
    """Return a text on one line, without the markup of HTML, Markdown and reStructuredText.

    ``[text][name]`` is a link only in a document that ``has_references``.
    """
    if "<" in text:
        text = _TAG.sub(
            lambda tag: "" if tag.string[tag.end() : tag.end() + 1] in _CLOSING else " ", text
        )
    if "[" in text:
        text = _LINK.sub(r"\1", IMAGE.sub(" ", text))
        text = _REFERENCE.sub(r"\1", text) if has_references else text
    if "`" in text:
        text = _NAMED_LINK.sub(r"\1", _ROLE.sub("", text))
    if "`" in text or "*" in text or "_" in text:
        text = _EMPHASIS.sub(r"\g<in_code>\g<in_stars>\g<in_lines>", text)
    if not text.isascii():
        text = _WRAPPED.sub("", text)
    return " ".join(text.split())
