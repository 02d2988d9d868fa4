"""Tell in the text of a mail what is new, what is quoted from another mail, and the signature."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

from catalog.core.documents import Segment

Kind = Literal["text", "quote", "signature"]

_SEPARATOR = re.compile(r"\s*-{2,}\s*[^\W\d_][^-]{2,60}-{2,}\s*|\s*_{5,}\s*")
_FIELD = re.compile(r"[*_]*[^\W\d_][\w /-]{0,25}[*_]*\s?[:：].*")
_FROM = re.compile(
    r"[*_]*(?:From|Von|De|Da|Van|Från|Fra|Lähettäjä|Od|От|Від|Kimden|Από|差出人|发件人|寄件者)"
    r"[*_]*\s?[:：].+"
)
_LIST_RULE = re.compile(r"[_=-]{20,}\s*")
_WHEN = re.compile(r"\d{4}|\d:\d\d")
_FIELDS = 3
_LONGEST_SIGNATURE = 15
_LONGEST_FOOTER = 8
_MAX_SEGMENTS = 100


def tell_kinds(lines: Sequence[str]) -> list[Kind]:
    """Return for each line whether it is new text, quoted from another mail, or a signature.

    Quoted are lines with ``>`` and the line above that says who wrote them; and everything after a
    rule such as ``-----Original Message-----`` or after the fields (From, Sent, To) that Outlook
    writes above the mail that is answered.
    """
    kinds: list[Kind] = ["quote" if line.startswith(">") else "text" for line in lines]
    end = next((at for at in range(len(lines)) if _opens_original(lines, at)), len(lines))
    kinds[end:] = ["quote"] * (len(lines) - end)
    for at in range(1, end):
        if kinds[at] == "quote" and kinds[at - 1] == "text":
            if not lines[at - 1].strip() and at > 1 and kinds[at - 2] == "quote":
                kinds[at - 1] = "quote"
            _mark_attribution(lines, kinds, at)
    for at in range(end):
        if kinds[at] == "text" and (stop := _signature_end(lines, kinds, at)):
            kinds[at:stop] = ["signature"] * (stop - at)
    return kinds


def _opens_original(lines: Sequence[str], at: int) -> bool:
    """Return whether the rest from this line on is another mail."""
    after = [one for one in lines[at + 1 : at + 2 * _FIELDS] if one.strip()][:_FIELDS]
    fields = [_FIELD.fullmatch(one) is not None for one in after]
    if _SEPARATOR.fullmatch(lines[at]):
        return fields[:2] == [True, True]
    is_first = at > 0 and not lines[at - 1].strip() and _FROM.fullmatch(lines[at]) is not None
    return is_first and sum(fields) >= _FIELDS - 1


def _mark_attribution(lines: Sequence[str], kinds: list[Kind], quote: int) -> None:
    """Mark the line above a quotation that says who wrote it, and a line that it continues."""
    last = quote - 1 - (not lines[quote - 1].strip())
    if last < 0 or kinds[last] != "text" or not lines[last].rstrip().endswith((":", "：")):
        return
    above = [lines[at].strip() if at >= 0 else "" for at in (last - 1, last - 2)]
    is_begun = _WHEN.search(above[0]) is not None and not _WHEN.search(lines[last])
    first = last - bool(above[0] and (not above[1] or is_begun))
    if any(_WHEN.search(line) or "@" in line for line in lines[first : last + 1]):
        kinds[first:quote] = ["quote"] * (quote - first)


def _signature_end(lines: Sequence[str], kinds: Sequence[Kind], at: int) -> int:
    """Return where the signature ends that begins in this line, 0 if none does."""
    is_mark = lines[at].rstrip() == "--"
    if not is_mark and not _LIST_RULE.fullmatch(lines[at]):
        return 0
    most = at + (_LONGEST_SIGNATURE if is_mark else _LONGEST_FOOTER)
    after = range(at, min(most + 1, len(lines)))
    stop = next((one for one in after if kinds[one] == "quote"), after.stop)
    is_last = is_mark or stop == len(lines)
    return stop if is_last and stop <= most else 0


def mark_segments(text: str, start: int) -> Iterator[Segment]:
    """Yield the quotations and signatures of a text that begins at ``start`` of its document.

    After the first hundred, quotations stay in the text, where ``>`` marks them: a passage for each
    line would make millions of one mail.
    """
    lines, left = text.split("\n"), _MAX_SEGMENTS
    for kind, group in groupby(zip(tell_kinds(lines), lines, strict=True), key=lambda it: it[0]):
        length = sum(len(line) + 1 for _, line in group)
        if kind != "text" and left:
            left -= 1
            yield Segment(start, start + length - 1, kind)
        start += length
