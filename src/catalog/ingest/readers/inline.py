"""Markup inside a heading, reduced to the words that a reader sees."""

from __future__ import annotations

import html
import re

_LONGEST = 1000

_CODE = re.compile(r"(`+)(.+?)(?<!`)\1(?!`)")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_HELD = re.compile("\ue000(\\d+)\ue001")
_NO_MARKS = dict.fromkeys((0xE000, 0xE001))
_MARKDOWN = (
    (re.compile(r"!?\[([^\[\]]*)\]\((?:[^()]|\([^()]*\))*\)"), r"\1"),  # image, link
    (re.compile(r"!?\[([^\[\]]*)\]\((?:[^()]|\([^()]*\))*\)"), r"\1"),  # a link round an image
    (re.compile(r"!?\[([^\[\]]+)\]\[[^\[\]]*\]"), r"\1"),  # reference
    (re.compile(r"<((?:https?|mailto|ftp):[^<>\s]+)>"), r"\1"),
    (re.compile(r"</?[A-Za-z][^<>]*>"), ""),
    (re.compile(r"\s*\{[#.:][^{}]*\}\s*\Z"), ""),  # {#anchor}
    (re.compile(r"(\*{1,3})(?=\S)([^*]*[^*\s])\1"), r"\2"),
    (re.compile(r"(~~)(?=\S)([^~]*[^~\s])\1"), r"\2"),
    # No identifier between the underscores: __init__ is a name, not a bold "init".
    (re.compile(r"(?<!\w)(_{1,3})(?=\S)([^_]*\s[^_]*[^_\s])\1(?!\w)"), r"\2"),
    (re.compile(r"(?<![\w_])_(?=[^_\s])([^_\s]+)_(?![\w_])"), r"\1"),
)
_RST = (
    (re.compile(r"`([^`<>]+?)\s*<[^`<>]*>`__?"), r"\1"),  # `text <address>`_
    (re.compile(r":[\w.+:-]+:`~?([^`<>]+?)(?:\s*<[^`<>]*>)?`"), r"\1"),  # :role:`text <target>`
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"`([^`]+)`(?:__?)?"), r"\1"),
    (re.compile(r"(\*{1,2})(?=\S)([^*]*[^*\s])\1"), r"\2"),
    (re.compile(r"(?<=\w)__?(?!\w)"), ""),  # reference_
    (re.compile(r"\|(\w[^|]*)\|"), r"\1"),
)


def plain_markdown(markup: str) -> str:
    """A Markdown heading as plain text on one line; what stands in backticks stays as it is."""
    held: list[str] = []

    def hold(value: str) -> str:
        held.append(value)
        return f"\ue000{len(held) - 1}\ue001"

    text = markup[:_LONGEST].translate(_NO_MARKS)
    text = _CODE.sub(lambda found: hold(found.group(2).strip()), text)
    text = _ESCAPED.sub(lambda found: hold(found.group(1)), text)
    text = html.unescape(_apply(text, _MARKDOWN))
    text = _HELD.sub(lambda found: held[int(found.group(1))], text)
    return " ".join(text.split())


def plain_rst(markup: str) -> str:
    """A reStructuredText title as plain text on one line."""
    return " ".join(_apply(markup[:_LONGEST], _RST).split())


def _apply(text: str, rules: tuple[tuple[re.Pattern[str], str], ...]) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text
