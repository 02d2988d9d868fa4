"""Raised and lowered text, and formulas of web pages and Office files, as plain text."""

import re
from collections import defaultdict
from typing import Any

RAISED, LOWERED, CLOSED = "\ue000", "\ue001", "\ue002"
"""What a reader puts before a raised or a lowered run of text, and after either."""

_RUN = re.compile(f"([{RAISED}{LOWERED}])([^{RAISED}{LOWERED}{CLOSED}]*+){CLOSED}")
_ORDINAL = re.compile(r"(?:st|nd|rd|th|er|re|ère|e|è|ème|ième|de|nde|[ºªoa])\Z", re.IGNORECASE)
_COUNTED = re.compile(r"(?:\d|\b[IVXLC]+)\Z")
_NOTED = re.compile(r"(?:[^\W\d_]{4}|[.,;:!?\"”’»\]]|[^\W\d_]{4}[^()]{0,30}\))\Z")
"""What stands before the number of a note, not before a power: a word, or its full stop."""
_PLAIN = re.compile(r"[-+−–]?[^\W_]+(?:[.,]\d+)?|[^\w\s]{1,3}")


def write_scripts(text: str) -> str:
    """Return text with marked runs as plain text: 10^6, H_2O, 240 m^2, catechu [18], 21st.

    Marks that nothing closes go, too. Call this before any offset is taken.
    """
    for _ in range(3 if CLOSED in text else 0):  # a run inside a run comes first
        text = _RUN.sub(_write_run, text)
    return re.sub(f"[{RAISED}{LOWERED}{CLOSED}]", "", text)


def _write_run(run: re.Match[str]) -> str:
    is_raised, part = run[1] == RAISED, run[2].strip()
    before = run.string[max(0, run.start() - 40) : run.start()]
    after = run.string[run.end() : run.end() + 1]
    if not any(map(str.isalnum, part)):
        return part  # Na+, Acme™, an asterisk
    if not before.strip() or before[-1] == "\n":
        return part if not after or after.isspace() else f"{part} "  # the mark of a note itself
    if is_raised and (part in ("TM", "SM") or (_ORDINAL.match(part) and _COUNTED.search(before))):
        return part
    if is_raised and (part[0] == "[" or (part[0].isdigit() and _NOTED.search(before.rstrip()))):
        return f"{'' if before[-1].isspace() else ' '}[{part.strip('[]')}]"
    return ("^" if is_raised else "_") + _group(part, _PLAIN)


_LONGEST, _DEEPEST = 10_000, 50
"""Characters of a formula, and its levels; what is nested deeper is joined."""
_ROLES = {
    "msup": "e sup", "mover": "e sup", "msub": "e sub", "munder": "e sub", "msubsup": "e sub sup",
    "munderover": "e sub sup", "mfrac": "num den", "mroot": "e deg",
}  # fmt: skip
"""The children of a MathML element in order, by the names that Office gives to its own."""
_JOINTS = {"mtable": "; ", "m": "; ", "eqArr": "; ", "mtr": " ", "mr": " "}
_BASE = re.compile(r"\w[′']*+(?:_\w++)?|[\d.,]+|[^\W\d_]{3,}|[^\w\s]|\([^()]*+\)")
_TERM = re.compile(r"√?[\w.,′']+|[^\W_]++[\^_]\w+|\([^()]*+\)")


def formula_text(element: Any) -> str:
    """Return a formula of MathML or Office (``m:oMath``) on one line: T=2π√(L/g), x^17."""
    text = " ".join(re.sub("[\u2061-\u2064]", "", _write(element, 0)).split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _write(element: Any, depth: int) -> str:
    name = _name(element)
    if name.endswith("Pr") or name in ("annotation", "annotation-xml", "mphantom", "phant"):
        return ""
    if depth == _DEEPEST:
        return "".join(element.itertext())
    children = [child for child in element if isinstance(child.tag, str)]
    text = (element.text or "").strip()
    if not children:
        return f" {text} " if name == "mtext" and len(text) > 1 else text
    texts = [_write(child, depth + 1) for child in children]
    roles = _ROLES.get(name, "").split() or map(_name, children)
    parts = defaultdict(str, zip(roles, texts, strict=False))
    parts["sup" if name == "limUpp" else "sub"] += parts["lim"]
    inner = "".join(texts) if name == "msqrt" else parts["e"]
    script = parts["sub"] and "_" + _group(parts["sub"], _PLAIN)
    script += parts["sup"] and "^" + _group(parts["sup"], _PLAIN)
    if name in ("mfrac", "f"):
        return f"{_group(parts['num'], _TERM)}/{_group(parts['den'], _TERM)}"
    if name in ("msqrt", "mroot", "rad"):
        root, degree = _group(inner, _BASE), parts["deg"]
        return f"{root}^(1/{_group(degree, _TERM)})" if degree else f"√{root}"
    if name in ("nary", "func"):
        return (parts["fName"] or _property(element, "chr", "∫") + script) + f" {inner}"
    if name == "acc":
        return inner + _property(element, "chr", "\u0302")
    if script:
        return (_group(inner, _BASE) if len(children[0]) else inner) + script
    if name in ("d", "mfenced"):
        inner = _property(element, "sepChr", "|" if name == "d" else ",").join(filter(None, texts))
        return _property(element, "begChr", "(") + inner + _property(element, "endChr", ")")
    if name in _JOINTS:
        return _JOINTS[name].join(filter(None, texts))
    pieces = zip(texts, children, strict=True)
    return text + "".join(one + (child.tail or "").strip() for one, child in pieces)


def _group(text: str, plain: re.Pattern[str]) -> str:
    return text if not text.strip() or plain.fullmatch(text.strip()) else f"({text.strip()})"


def _property(element: Any, name: str, default: str) -> str:
    found = element.find(f"{{*}}{_name(element)}Pr/{{*}}{name}")
    return str(element.get(name, default)) if found is None else "".join(found.values())


def _name(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]
