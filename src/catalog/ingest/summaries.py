"""Summarise a document by the beginning of its prose: no markup, headings, tables or code."""

import re

MAX_CHARS = 800  # more finds no more documents by their cards (scifact, nfcorpus, anthropic-docs)
_NO_PROSE = re.compile(
    r"""\A\ufeff?---[ \t]*\n.*?^(?:---|\.\.\.)[ \t]*$                # front matter
    | ^[ ]{0,3}(```|~~~).*?(?:^[ ]{0,3}\1[`~]*[ \t]*$|\Z)           # code
    | ^[^\n]*\n(?:={3,}|-{3,}|~{3,})[ \t]*$                          # underlined heading
    | ^(?:[ \t]*(?:\#{1,6}[ \t]|\||\.\.[ ])|WEBVTT|[^\n]{0,40}-->)[^\n]*$  # heading, row, cue
    | ^(?:[^\w\n]|[\d_])+$                                           # rule or number
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_MARKUP = re.compile(
    r"""</?[A-Za-z!?][^<>]{0,300}> | !?\[([^\[\]]{0,300})\]\([^()\s]{0,300}\)  # tag, link
    | ^[ \t]*(?:[-*+•>]|\d{1,3}[.)]|[\[(]?(?:\d{1,2}:){1,2}\d\d[\])]?)[ \t]    # item, time
    | (?<!\w)[*_`]{1,3}(?=\w) | (?<=[\w.,;:!?)])[*_`]{1,3}(?!\w)               # emphasis
    """,
    re.VERBOSE | re.MULTILINE,
)


def summarise(text: str) -> str:
    """Return the first 800 characters of prose, or without prose those of the text, on one line."""
    beginning = text[:20_000]  # so that the time does not grow with the text
    for one in (_NO_PROSE.sub("\n", beginning), beginning):
        if words := _MARKUP.sub(lambda it: it[1] or " " * (it[0][0] not in "*_`"), one).split():
            return shorten(" ".join(words), MAX_CHARS)
    return ""


def shorten(text: str, max_chars: int) -> str:
    """Return the text, or as many of its first words as fit, with ``…``."""
    start = text[:max_chars]  # a script without spaces is cut anywhere
    start = start.rpartition(" ")[0] if " " in start[-60:] else start[:-1]
    return text if len(text) <= max_chars else start.rstrip(" ,;:–—-") + "…"
