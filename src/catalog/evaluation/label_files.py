"""Labels in the files of other tools: BEIR, TREC, Quepid and OpenSearch.

==========  ========================================================================
BEIR        a folder with ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``
TREC        ``query 0 document grade``, and a file of topics: the texts of the queries
Quepid      a CSV with the columns ``query,docid,rating``, among others
OpenSearch  a judgement list: JSON with ``judgmentRatings``
==========  ========================================================================
"""

from __future__ import annotations

import csv
import io
import json
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from pydantic import ValidationError

from catalog.core.errors import GoldenSetError
from catalog.evaluation.backends import encode_name
from catalog.evaluation.golden import MAX_GRADE, Expected, GoldenQuery, GoldenSet
from catalog.evaluation.golden_files import (
    describe_json,
    describe_problems,
    read_lines,
    write_whole,
)

Row = tuple[str, str, str, object]
"""The place of a label in its file, its query, document and grade; ``None`` without a label."""
Texts = Mapping[str, tuple[str, object]]
"""The place of each query in its file, and its text."""
_IDS, _TEXTS = ("_id", "id", "query_id", "qid"), ("text", "query", "title")


def read_labels(path: Path, topics: Path | None = None) -> tuple[GoldenSet, int]:
    """Read another tool's labels: TREC's with ``topics``, else Quepid's CSV or OpenSearch's JSON.

    Returns the set and the number of queries without a label, which are left out. Negative grades
    become 0. Queries of Quepid and OpenSearch have no ids and are numbered. Raises
    :class:`GoldenSetError` naming file and line.
    """
    if topics is not None:
        labels, texts = _collect(_trec_rows(path)), _read_topics(topics)
    else:
        is_json = "".join(read_lines(path)).lstrip().startswith(("{", "["))
        by_text = _collect(_opensearch_rows(path) if is_json else _quepid_rows(path))
        numbered = {f"q{number:03}": text for number, text in enumerate(by_text, start=1)}
        labels = {query: by_text[text] for query, text in numbered.items()}
        texts = {query: (str(path), text) for query, text in numbered.items()}
    queries = []
    for query, grades in labels.items():
        if query not in texts:
            raise GoldenSetError(f"{path}: judged query {query!r} is not in {topics}")
        place, text = texts[query]
        try:
            expected = tuple(Expected(path=path, grade=grade) for path, grade in grades.items())
            if expected:
                queries.append(GoldenQuery(id=query, query=text, expected=expected))
        except ValidationError as error:
            reason = describe_problems(error)
            raise GoldenSetError(f"{place}: judged query {query!r}: {reason}") from None
    if not queries:
        raise GoldenSetError(f"{path} has no judgement")
    return GoldenSet(path.stem, tuple(queries)), len(texts) - len(queries)


def _collect(rows: Iterable[Row]) -> dict[str, dict[str, int]]:
    """Return the grades of documents by query."""
    labels: dict[str, dict[str, int]] = {}
    for place, query, document, given in rows:
        grades = labels.setdefault(query, {})
        if given is None:
            continue
        try:
            grade = max(float(given), 0.0)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            grade = math.nan
        if not (query and document and grade.is_integer() and grade <= MAX_GRADE):
            raise GoldenSetError(
                f"{place}: a label is a query, a document and a whole number up to {MAX_GRADE}, "
                f"not {reprlib.repr((query, document, given))}"
            )
        if grades.setdefault(document, int(grade)) != grade:
            raise GoldenSetError(f"{place}: {query!r} judges {document!r} again with another grade")
    return labels


def _trec_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of TREC's four columns, or of BEIR's three, which tabs separate."""
    for number, line in _numbered(path):
        place, columns = f"{path} line {number}", line.strip("\r").split("\t")
        if len(columns) == 3:
            if number > 1 or columns[2].strip().lstrip("-").isdigit():  # else a header
                yield place, columns[0], columns[1], columns[2]
        elif len(columns := columns if len(columns) == 4 else line.split()) == 4:
            yield place, columns[0], unquote(columns[2]), columns[3]
        else:
            raise GoldenSetError(
                f"{place} is not 'query 0 document grade', or query, document and grade separated "
                f"by tabs: {reprlib.repr(line)}"
            )


def _read_topics(path: Path) -> dict[str, tuple[str, object]]:
    """Read the queries' texts: JSON Lines, Quepid's CSV of them, or id and text with a tab."""
    rows: Iterable[tuple[str, Sequence[object]]]
    if path.suffix == ".csv":
        rows = _csv_rows(path, ("queryid", "qid"), ("query",))
    else:
        rows = (_topic(f"{path} line {number}", line) for number, line in _numbered(path))
    texts: dict[str, tuple[str, object]] = {}
    for place, (query, text) in rows:
        first, known = texts.setdefault(str(query), (place, text))
        if known != text:
            raise GoldenSetError(f"{place}: query {query!r} has another text in {first}")
    return texts


def _topic(place: str, line: str) -> tuple[str, Sequence[object]]:
    if not line.lstrip().startswith("{"):
        query, tab, text = line.partition("\t")
        if not tab:
            wanted = "a query's id and its text, separated by a tab"
            raise GoldenSetError(f"{place} is not {wanted}: {reprlib.repr(line)}")
        return place, (query.strip(), text.strip())
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise GoldenSetError(f"{place}: not JSON: {describe_json(error)}") from None
    names = [next((name for name in known if name in row), "") for known in (_IDS, _TEXTS)]
    if "" in names:
        wanted = 'an object with "_id" and "text"'
        raise GoldenSetError(f"{place} is not {wanted}: {reprlib.repr(row)}")
    return place, [row[name] for name in names]


def _quepid_rows(path: Path) -> Iterator[Row]:
    """Yield the ratings of a case; Quepid also writes queries and documents without a rating."""
    columns = ("query", "querytext"), ("docid",), ("rating",)
    for place, (query, document, rating) in _csv_rows(path, *columns):
        yield place, query.strip(), document, rating or None


def _csv_rows(path: Path, *wanted: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the values of the wanted columns, each known by any of its names: Doc ID, doc_id."""
    reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
    try:
        heads = ["".join(filter(str.isalnum, head)).lower() for head in next(reader, [])]
        found = [next((heads.index(one) for one in names if one in heads), -1) for names in wanted]
        if -1 in found:
            columns = ", ".join(names[0] for names in wanted)
            raise GoldenSetError(f"{path} line 1 has no column for each of: {columns}")
        for row in reader:
            place, count = f"{path} line {reader.line_num}", len(row)
            if count not in (0, 1, len(heads)):  # Quepid writes a query without ratings alone
                raise GoldenSetError(f"{place} has {count} columns, not {len(heads)}")
            if row:
                yield place, [row[at] if at < count else "" for at in found]
    except csv.Error as error:
        raise GoldenSetError(f"{path} line {reader.line_num}: not CSV: {error}") from None


def _opensearch_rows(path: Path) -> Iterator[Row]:
    """Yield the ratings of a judgement list, as it was imported or as the server returns it."""
    try:
        data = json.loads("\n".join(read_lines(path)))
    except (ValueError, RecursionError) as error:
        line = f" line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise GoldenSetError(f"{path}{line}: not JSON: {describe_json(error)}") from None
    match data:
        case {"hits": {"hits": [{"_source": {"judgmentRatings": list(queries)}}]}}:
            pass
        case {"judgmentRatings": list(queries)}:
            pass
        case _:
            raise GoldenSetError(f'{path} is not a judgement list: it has no "judgmentRatings"')
    for number, one in enumerate(queries):
        place = f"{path} judgmentRatings[{number}]"
        match one:
            case {"query": str(query), "ratings": list(ratings)}:
                yield place, query.strip(), "", None
            case _:
                raise GoldenSetError(f'{place} is not an object with "query" and "ratings"')
        for at, it in enumerate(ratings):
            label = it if isinstance(it, dict) else {}
            document = str(label.get("docId", ""))
            yield f"{place}.ratings[{at}]", query.strip(), document, label.get("rating", "")


def write_labels(golden: GoldenSet, path: Path, topics: Path | None = None) -> None:
    """Write the labels as Quepid's CSV; with ``topics`` as TREC's qrels, and the texts there.

    ``topics`` are JSON Lines if the name ends so, else id and text with a tab, where white space in
    a text becomes one blank. White space in a document's name is percent-encoded in qrels. Raises
    :class:`GoldenSetError` if a file cannot be written, and for Quepid, which knows queries by
    their texts, if two have the same.
    """
    labels = [(query, label) for query in golden for label in query.expected]
    if topics is None:
        columns = [("query", "docid", "rating")]
        columns += [(query.query, label.path, str(label.grade)) for query, label in labels]
        if len({query.query.strip() for query in golden}) < len(golden):
            raise GoldenSetError("Quepid knows queries by their texts, and two here have the same")
        csv.writer(text := io.StringIO(), lineterminator="\n").writerows(columns)
        files = {path: text.getvalue()}
    else:
        lines = (f"{one.id} 0 {encode_name(it.path)} {it.grade}\n" for one, it in labels)
        texts = [f"{one.id}\t{' '.join(one.query.split())}" for one in golden]
        if topics.suffix == ".jsonl":
            rows = ({"_id": one.id, "text": one.query} for one in golden)
            texts = [json.dumps(row, ensure_ascii=False) for row in rows]
        files = {path: "".join(lines), topics: "".join(f"{text}\n" for text in texts)}
    for file, content in files.items():
        write_whole(file, content)


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Return the lines that are not blank, numbered as in the file."""
    return ((n, line) for n, line in enumerate(read_lines(path), start=1) if line.strip())
