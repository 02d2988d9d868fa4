"""Questions with their answers, in thirteen languages, made of packages: sets nobody tuned on.

    apt-get download perl-doc debian-faq debian-faq-{de,fr,it,ja,ko,nl,pt,ru,zh-cn}
    apt-get download debian-reference-{en,de,es,fr,it,ja,pt,zh-cn}
    for file in *.deb; do dpkg -x $file unpacked; done
    pip download --no-deps chatterbot-corpus && unzip chatterbot_corpus*.whl -d unpacked
    python benchmarks/question_sets.py unpacked SETS
    python benchmarks/fusion.py SETS/* --real --home 'HOMES/{}'

Writes collections in BEIR layout. A query is a question (of perlfaq and Debian's FAQ), a heading
(of Debian's reference) or what is said to a chat bot; the answer is the text below it, or what the
bot replies, without the question. Equal answers are one document.
"""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import yaml

from catalog.evaluation.golden import GoldenSet
from catalog.evaluation.label_files import read_labels

CORPUS = "corpus.jsonl"
Pairs = Iterable[tuple[str, str]]
BOT_LANGUAGES = (
    "chinese", "french", "german", "italian", "japanese", "korean", "persian", "russian",
    "spanish", "ukrainian",
)  # fmt: skip
TECHNICAL = frozenset({"coding", "tech_support"})  # of the English ones
LEAST_SECTION = 80  # characters: less is a list of links


def read_beir(folder: Path, split: str = "test") -> GoldenSet:
    """Read the judged queries of a split of such a collection."""
    return read_labels(folder / "qrels" / f"{split}.tsv", folder / "queries.jsonl")[0]


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    write(target / "perlfaq", perl_questions(source), least=30)
    for name, pairs in conversations(source):
        write(target / name, pairs, least=8)
    for kind, pattern in (("dfaq", "doc/debian/FAQ"), ("dref", "debian-reference")):
        for language, pages in sorted(pages_by_language(source, pattern).items()):
            write(target / f"{kind}-{language}", sections(pages), least=LEAST_SECTION)


def write(folder: Path, pairs: Pairs, *, least: int) -> None:
    """Write a collection of the pairs whose answer has so many characters at least."""
    answers: dict[str, str] = {}
    questions: dict[str, str] = {}
    labels = set()
    for question, answer in pairs:
        if len(answer) >= least and len(question) >= 4:
            document = answers.setdefault(answer, f"d{len(answers)}")
            labels.add((questions.setdefault(question, f"q{len(questions)}"), document))
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents = [{"_id": id_, "title": "", "text": text} for text, id_ in answers.items()]
    queries = [{"_id": id_, "text": text} for text, id_ in questions.items()]
    for file, rows in ((CORPUS, documents), ("queries.jsonl", queries)):
        (folder / file).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    rows = "".join(f"{query}\t{document}\t1\n" for query, document in sorted(labels))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    print(f"{folder.name}: {len(documents)} documents, {len(queries)} questions")


def perl_questions(source: Path) -> Iterator[tuple[str, str]]:
    """Yield the questions of perlfaq1 to perlfaq9."""
    for file in sorted(source.rglob("perlfaq[1-9].pod")):
        for part in re.split(r"^=head2 ", file.read_text(errors="replace"), flags=re.M)[1:]:
            question, _, answer = part.partition("\n")
            yield _plain_pod(question), _plain_pod(re.split(r"^=head1", answer, flags=re.M)[0])


def _plain_pod(text: str) -> str:
    return re.sub(r"[A-Z]<+ ?([^<>]*?) ?>+", r"\1", text).strip()


def conversations(source: Path) -> Iterator[tuple[str, Pairs]]:
    """Yield what is said first and the first reply, by set."""
    for language in ("english", *BOT_LANGUAGES):
        files = sorted(source.glob(f"chatterbot_corpus/data/{language}/*.yml"))
        pairs = {file.stem: list(_first_turns(file)) for file in files}
        if language == "english":
            yield "bot-tech", [one for stem in pairs if stem in TECHNICAL for one in pairs[stem]]
            language, pairs = "rest", {s: p for s, p in pairs.items() if s not in TECHNICAL}
        yield f"bot-{language}", [one for of_file in pairs.values() for one in of_file]


def _first_turns(file: Path) -> Iterator[tuple[str, str]]:
    for turns in yaml.safe_load(file.read_text(encoding="utf-8"))["conversations"] or ():
        said = [str(turn).strip() for turn in turns] if isinstance(turns, list) else []
        yield from list(pairwise(said))[:1]


def pages_by_language(source: Path, pattern: str) -> dict[str, list[Path]]:
    """Return the pages of a book, by language as their names tell it."""
    pages: dict[str, list[Path]] = {}
    for file in sorted(source.rglob("*.html")):
        named = re.fullmatch(r"(.+)\.([a-z]{2}(?:-[a-z]+)?)\.html", file.name)
        if pattern in str(file) and named and named[1] != "index":
            pages.setdefault(named[2], []).append(file)
    return pages


def sections(pages: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield heading and text of the sections of DocBook's pages."""
    for page in pages:
        text = page.read_text(encoding="utf-8", errors="replace")
        text = re.sub(r'<div class="(toc|navheader|navfooter)".*?</div>', "", text, flags=re.DOTALL)
        parts = re.split(r'<h[1-6] class="title"[^>]*>(.*?)</h[1-6]>', text, flags=re.DOTALL)
        for heading, section in zip(parts[1::2], parts[2::2], strict=True):
            yield re.sub(r"^[\d.\s]+", "", _plain_html(heading)), _plain_html(section)


def _plain_html(text: str) -> str:
    text = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r"[ \t\xa0]+", " ", html.unescape(re.sub(r"<[^>]+>", "", text)))
    return re.sub(r"\n\s*\n+", "\n\n", text).strip()


if __name__ == "__main__":
    main()
