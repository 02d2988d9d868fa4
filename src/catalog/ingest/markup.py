"""Taking markup off a text: emphasis, links, images, roles, tags; the words stay as they are."""

from __future__ import annotations

import re

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


def without_markup(text: str, has_references: bool = False) -> str:
    if "<" in text:
        whole = text
        text = _TAG.sub(
            lambda tag: "" if whole[tag.end() : tag.end() + 1] in _CLOSING else " ", whole
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
