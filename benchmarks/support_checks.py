"""How many changed sentences the check of support catches, and how many true ones it marks.

    python benchmarks/support_checks.py ../shared/data [--show]

True sentences are those of a collection's documents, as they stand or said otherwise (a clause
left out, two sentences joined, clauses in the other order, numbers, dates and contractions written
in another way, synonyms), each with the 1,500 characters around it. Each changed one has a number,
date, name or unit replaced, half of them by another of the same passage, or a negation put in or
taken out. *Spliced* are halves of two sentences that stand far from one another, *merged* two
whole ones. *Invented* are sentences of another collection, *wrongly cited* those of another
document of the same one. The changes are made without the code that finds them.

The first three collections were looked at while the rules were written; the others judge them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

from catalog.answers.support import check_support
from catalog.ingest.chunking.boundaries import sentence_spans

Change = Callable[[str, str, random.Random], str]
SEED = 20261123
PASSAGE = 1_500
EACH = 100  # changed sentences of a kind, in each half
TRUE = 1_500
FITTED = ("scifact", "tutorialvqa", "python", "arguana")
JUDGED = ("nfcorpus", "anthropic-docs")


@dataclass(frozen=True)
class Case:
    """A sentence with the passage that it cites; ``kind`` is what is wrong with it, if anything."""

    kind: str
    sentence: str
    passage: str
    original: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--show", action="store_true", help="print what it gets wrong of the fitted half"
    )
    options = parser.parse_args()
    for half, names in (("fitted", FITTED), ("judged", JUDGED)):
        cases = make_cases(options.data, names)
        print(f"{half}: {', '.join(names)}")
        report(cases, is_shown=options.show and half == "fitted")


def report(cases: Sequence[Case], *, is_shown: bool) -> None:
    marked: Counter[str] = Counter()
    total: Counter[str] = Counter()
    blamed: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        support = check_support(case.sentence, case.passage)
        total[case.kind] += 1
        marked[case.kind] += not support.supported
        blamed[case.kind].update({reason.split(":")[0] for reason in support.reasons})
        is_wrong = support.supported == (not case.kind.startswith("true"))
        if is_wrong and is_shown:
            print(f"  - {case.kind}: {case.sentence}\n    {case.original}\n    {support.reasons}")
    for kind, n in total.items():
        share = 100 * marked[kind] / n
        print(f"  {kind:18}{n:6} marked {share:5.1f} %   {dict(blamed[kind].most_common())}")


def make_cases(data: Path, names: Sequence[str]) -> list[Case]:
    random_ = random.Random(SEED)
    pools = {name: list(_passages(data, name, random_)) for name in names}
    cases: list[Case] = []
    for name, pool in pools.items():
        for at, (sentence, passage) in enumerate(pool[: TRUE // len(names)]):
            if at % 2:
                cases.append(Case("true", sentence, passage))
            elif said := say_otherwise(sentence, passage, random_):
                cases.append(Case("true, otherwise", said, passage, sentence))
        others = [one for other in names if other != name for one, _ in pools[other]]
        texts = [passage for _, passage in pool]
        for sentence, passage in pool[: EACH // len(names) + 1]:
            cases.append(Case("invented", random_.choice(others), passage))
            other = random_.choice(texts)
            if sentence not in other:
                cases.append(Case("wrongly cited", sentence, other))
    for kind, change in CHANGES.items():
        made = [
            Case(kind, changed, passage, sentence)
            for pool in pools.values()
            for sentence, passage in pool
            for base in [_maybe_otherwise(sentence, passage, random_)]
            if (changed := change(base, passage, random_)) and _plain(changed) != _plain(base)
        ]
        cases += random_.sample(made, min(EACH, len(made)))
    return cases


def _maybe_otherwise(sentence: str, passage: str, random_: random.Random) -> str:
    if random_.random() < 0.5:
        return sentence
    return say_otherwise(sentence, passage, random_, OTHERWISE[:-1]) or sentence


def _plain(text: str) -> str:
    """Letters and digits in lower case, small numbers in digits."""
    words = (WORDS.index(word) if word in WORDS else word for word in text.lower().split())
    return " ".join(map(str, words))


_MARK = re.compile(r" ?\[\d+\]|\[[iv]+\]")  # a document's own references


def _passages(data: Path, name: str, random_: random.Random) -> Iterator[tuple[str, str]]:
    """Sentences of 6 to 40 words, one of each document, with the text around."""
    if name == "python":
        texts = [topics[topic] for topic in sorted(topics)] * 12
    else:
        lines = (data / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
        documents = [json.loads(line) for line in lines]
        texts = [f"{one['title']}\n\n{one['text']}" for one in documents]
        if len(texts) < 1_000:
            texts *= 1_000 // len(texts)
    random_.shuffle(texts)
    seen = set()
    for text in (_MARK.sub("", text) for text in texts[:3_000]):
        title_end = text.find("\n\n") + 2
        spans = [
            (start, end)
            for start, end in sentence_spans(text)
            if start >= title_end
            and 6 <= len(text[start:end].split()) <= 40
            and "\n\n" not in text[start:end]
            and text[end - 1] == "."
        ]
        if not spans:
            continue
        start, end = random_.choice(spans)
        sentence = " ".join(text[start:end].split())
        if sentence in seen:
            continue
        seen.add(sentence)
        before = max(0, start - random_.randrange(PASSAGE // 2))
        yield sentence, text[before : max(end, before + PASSAGE)]


# --- the same said otherwise -------------------------------------------------------------------

SYNONYMS = {
    "show": "demonstrate", "shows": "demonstrates", "showed": "demonstrated", "use": "employ",
    "used": "employed", "using": "with the help of", "large": "big", "important": "significant",
    "help": "assist", "helps": "assists", "begin": "start", "many": "numerous", "get": "obtain",
    "suggest": "indicate", "suggests": "indicates", "however": "but", "therefore": "thus",
    "choose": "select", "create": "make", "study": "investigation", "results": "findings",
    "people": "persons", "because": "since", "children": "kids", "find": "discover",
    "found": "observed", "also": "in addition", "often": "frequently", "need": "require",
}  # fmt: skip
CONTRACTIONS = {
    "do not": "don't", "does not": "doesn't", "is not": "isn't", "are not": "aren't",
    "cannot": "can't", "did not": "didn't", "was not": "wasn't", "it is": "it's",
}  # fmt: skip
_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
WORDS = _WORDS.split()
_MONTHS = "January February March April May June July August September October November December"
MONTHS = _MONTHS.split()
LEADS = ("According to the document, ", "The passage says that ", "In short, ", "Yes: ", "")


def say_otherwise(
    sentence: str, passage: str, random_: random.Random, ways: Sequence[Change] = ()
) -> str:
    said = sentence
    for change in random_.sample(ways or OTHERWISE, 3):
        said = change(said, passage, random_)
    if said == sentence and not ways:
        said = _lead(said, passage, random_)
    return "" if said == sentence or len(said.split()) < 4 else said


def _lead(text: str, _: str, random_: random.Random) -> str:
    lead = random_.choice(LEADS)
    word = text.split()[0]
    plain = word.lower() in ("the", "a", "this", "these", "in", "it", "we", "if", "you", "for")
    return lead + (text[0].lower() + text[1:] if lead and plain else text)


def _synonyms(text: str, _: str, __: random.Random) -> str:
    return re.sub(r"[a-z]+", lambda m: SYNONYMS.get(m[0], m[0]), text)


def _contract(text: str, _: str, __: random.Random) -> str:
    for long, short in CONTRACTIONS.items():
        text = re.sub(rf"\b{long}\b", short, text)
    return text


def _without_brackets(text: str, _: str, __: random.Random) -> str:
    return re.sub(r"\s*\([^()]*\)", "", text)


def _numbers(text: str, _: str, __: random.Random) -> str:
    text = re.sub(r"(?<![\w.,])(\d{1,3}),(\d{3})(?![\d,.])", r"\1\2", text)
    text = re.sub(r"(?<=\d)\s?%", " percent", text)
    text = re.sub(r"(?<=\d)\s?mg\b", " milligrams", text)
    text = re.sub(r"(?<=\d)\s?years\b", " yrs", text)
    return re.sub(
        r"(?<![\w.,:/$€£+-])(\d{1,2})(?= [a-z]{3,})",
        lambda m: WORDS[int(m[1])] if int(m[1]) < 13 else m[0],
        text,
    )


def _dates(text: str, _: str, __: random.Random) -> str:
    names = "|".join(MONTHS)
    text = re.sub(rf"\b({names}) (\d{{1,2}}), (\d{{4}})\b", r"\2 \1 \3", text)
    return re.sub(rf"\b(\d{{1,2}}) ({names}) (\d{{4}})\b", r"\2 \1, \3", text)


def _one_clause(text: str, _: str, __: random.Random) -> str:
    first, comma, rest = text.partition(", ")
    if not comma or len(rest.split()) < 6 or len(first.split()) > 6 or rest[:4] in ("and ", "or "):
        return text
    return rest[0].upper() + rest[1:]


def _turned(text: str, _: str, __: random.Random) -> str:
    match = re.fullmatch(
        r"((?:When|If|After|While|Although|Because|In|Before) [^,]+), ([^,]+)\.", text
    )
    if match is None:
        return text
    return f"{match[2][0].upper()}{match[2][1:]} {match[1][0].lower()}{match[1][1:]}."


def _joined(text: str, passage: str, _: random.Random) -> str:
    at = passage.find(text)
    if at < 0:
        return text
    after = passage[at + len(text) : at + len(text) + 300]
    following = [after[start:end] for start, end in sentence_spans(after)][:1]
    if not following or following[0][-1:] != "." or len(following[0].split()) > 25:
        return text
    return f"{text.rstrip('.')}, and {' '.join(following[0].split())}"


OTHERWISE = (
    _synonyms, _contract, _without_brackets, _numbers, _dates, _one_clause, _turned, _joined, _lead
)  # fmt: skip


# --- what goes wrong ---------------------------------------------------------------------------

_NUMBER = re.compile(
    r"(?<![\w.,:/-])\d+(?:[.,]\d+)*(?![\w:/-]|[.,]\d)|\b(?:two|three|four|five|six)\b"
)
_YEAR = re.compile(r"(?<![\d.,/-])(?:19|20)\d\d(?![\d-])")
_DATE = re.compile(
    rf"\b(?:{'|'.join(MONTHS)})(?: \d{{1,2}}(?!\d))?(?:,? \d{{4}})?\b|{_YEAR.pattern}"
)
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][A-Za-z0-9]+(?: [A-Z][a-z]+)*\b")
_UNITS = (
    ("mg", "g", "kg", "µg"), ("milligrams", "grams"), ("mm", "cm", "km"), ("ml", "l", "dl"),
    ("seconds", "minutes", "hours", "days", "weeks", "months", "years"),
    ("second", "minute", "hour", "day", "week", "month", "year"),
    ("min", "h", "s"), ("KB", "MB", "GB"), ("bits", "bytes"), ("pixels", "inches", "cm"),
    ("dollars", "euros"), ("tokens", "characters", "words"), ("Hz", "kHz", "MHz"),
    ("mmol", "µmol", "mol"), ("percent", "degrees"), ("meters", "kilometers", "miles"), ("W", "kW"),
    ("daily", "weekly", "monthly"),
)  # fmt: skip
_UNIT = re.compile(
    rf"(?<=\d)[ -]?({'|'.join(sorted({u for g in _UNITS for u in g}, key=len, reverse=True))})\b"
    r"|(?<= )(?:seconds|minutes|hours|days|weeks|months|years|daily|weekly|monthly)\b"
)


def _swap(pattern: re.Pattern[str], text: str, passage: str, random_: random.Random, new) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return ""
    match = random_.choice(found)
    others = sorted({m.group() for m in pattern.finditer(passage)} - {match.group()})
    others = [one for one in others if one not in match.group() and match.group() not in one]
    other = random_.choice(others) if others and random_.random() < 0.5 else new(match.group())
    return text[: match.start()] + other + text[match.end() :] if other else ""


def change_number(text: str, passage: str, random_: random.Random) -> str:
    def new(old: str) -> str:
        if old.isalpha():
            return random_.choice([word for word in WORDS[2:8] if word != old])
        at = random_.randrange(len(old))
        while not old[at].isdigit():
            at = random_.randrange(len(old))
        digit = random_.choice([d for d in "123456789" if d != old[at]])
        return old[:at] + digit + old[at + 1 :]

    if any(_YEAR.fullmatch(match.group()) for match in _NUMBER.finditer(text)):
        return ""
    return _swap(_NUMBER, text, passage, random_, new)


def change_date(text: str, passage: str, random_: random.Random) -> str:
    def new(old: str) -> str:
        years = _YEAR.findall(old)
        if years and (random_.random() < 0.5 or not old[0].isalpha()):
            return old.replace(
                years[0], str(int(years[0]) + random_.choice((-10, -2, -1, 1, 3, 10)))
            )
        for month in MONTHS:
            if month in old:
                return old.replace(month, random_.choice([one for one in MONTHS if one != month]))
        return ""

    return _swap(_DATE, text, passage, random_, new)


_NAMES = "Einstein Norway Oracle Python Toyota Chicago Darwin IBM Brazil Shakespeare TCP Obama"
NAMES = _NAMES.split()


def change_name(text: str, passage: str, random_: random.Random) -> str:
    return _swap(_NAME, text, passage, random_, lambda _: random_.choice(NAMES))


def change_unit(text: str, passage: str, random_: random.Random) -> str:
    del passage
    found = list(_UNIT.finditer(text))
    if not found:
        return ""
    match = random_.choice(found)
    old = match[1] or match.group()
    group = random_.choice([group for group in _UNITS if old in group])
    other = random_.choice([one for one in group if one != old])
    return text[: match.end() - len(old)] + other + text[match.end() :]


def change_negation(text: str, passage: str, random_: random.Random) -> str:
    del passage
    if random_.random() < 0.4:
        for pattern, other in (
            (r"\b(do|does|did) not\b ?", ""),
            (r"\b(is|are|was|were|can|may|will|should) not\b", r"\1"),
            (r"\bcannot\b", "can"), (r"\bwithout\b", "with"), (r"\bnever\b", "always"),
            (r"\bno\b", "some"),
            (r"\b(is|are|was|were|does|do|did)n't\b", r"\1"), (r"\bcan't\b", "can"),
        ):  # fmt: skip
            if re.search(pattern, text):
                return re.sub(pattern, other, text, count=1).replace("  ", " ")
    for pattern, other in (
        (r"\b(is|are|was|were|can|may|will|should|must|has|have|had)\b(?! not|n't)", r"\1 not"),
        (r"\bwith\b", "without"), (r"\balways\b", "never"),
        (r"\b(suggest|show|increase|reduce|need|want|use|make|help)\b", r"do not \1"),
        (r"\b(suggest|show|increase|reduce|need|want|use|make|help)s\b", r"does not \1"),
    ):  # fmt: skip
        if re.search(pattern, text):
            return re.sub(pattern, other, text, count=1)
    return ""


def change_spliced(text: str, passage: str, random_: random.Random) -> str:
    """Join the beginning of a sentence to the end of another that is far from it."""
    mine, its = text.split(), _far_from(text, passage, random_).split()
    return " ".join(mine[: (len(mine) + 1) // 2] + its[len(its) // 2 :]) if its else ""


def merge(text: str, passage: str, random_: random.Random) -> str:
    """Join a sentence to another that is far from it: both are true."""
    other = _far_from(text, passage, random_)
    joint = random_.choice((", and ", "; ", ", while ", " and "))
    return f"{text.rstrip('.')}{joint}{other[0].lower()}{other[1:]}" if other else ""


def _far_from(text: str, passage: str, random_: random.Random) -> str:
    """Return a sentence of the passage 300 characters away or more; blank if there is none."""
    plain = " ".join(passage.split())
    at = plain.find(text)
    others = [
        plain[start:end]
        for start, end in sentence_spans(plain)
        if (start > at + len(text) + 300 or end < at - 300)
        and 6 <= len(plain[start:end].split()) <= 40
        and plain[end - 1] == "."
    ]
    return random_.choice(others) if at >= 0 and others else ""


CHANGES = {
    "number": change_number,
    "date": change_date,
    "name": change_name,
    "unit": change_unit,
    "negation": change_negation,
    "spliced": change_spliced,
    "true, merged": merge,
}

if __name__ == "__main__":
    main()
