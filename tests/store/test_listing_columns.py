"""What is stored of each document for listing it, against the rules it stands for."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import event, select

from builders import NOW, make_database, put
from catalog.core.dates import parse_date, to_timestamp
from catalog.core.documents import ParsedDocument
from catalog.core.filters import Op, condition, name_filter
from catalog.store.filter_sql import among
from catalog.store.listing import allowed_documents, dated_between, list_document_ids
from catalog.store.publish import NewRevision, content_hash, ensure_dataset, publish_all
from catalog.store.restriction import Restriction
from catalog.store.schema import documents

FILE = "2025-01-01T00:00:00+00:00"
ODD_DATES = [
    "", " ", "x" * 100, "2022", " 2022-05 ", "20220501", "2022-05-01 01:00:00 +0200",
    "2022-05-01T10:00:00.5Z", "2022-05-01t10:00:00z", "2022-02-30", "2022-13", "1970-01-01",
    "1969-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00",
    "\uff12\uff10\uff12\uff12", "2022\0", 2022, 2022.0, 2022.5, 20220501, -1, 0, 10**18, 1e300,
    True, (), ("2020", "2024-01-01", "soon"), ("2024", 2025, True), (False,),
]  # fmt: skip


def put_dated(database, path, metadata, file_modified=None):
    document = ParsedDocument(path, "text", "", "md", metadata=metadata)
    digest = content_hash(document)
    revision = NewRevision("d", path, document, digest, (), modified=file_modified)
    with database.write() as connection:
        ensure_dataset(connection, "d", NOW)
        publish_all(connection, [revision], NOW)


def dates_of(connection):
    return {row.path: row.dated for row in connection.execute(select(documents))}


@pytest.mark.parametrize(
    ("metadata", "file_modified", "expected"),
    [
        ({}, None, None),
        ({}, FILE, "2025-01-01"),
        ({"modified": "2024-03-01"}, FILE, "2024-03-01"),
        ({"created": "2023-01-05"}, FILE, "2023-01-05"),
        ({"created": "soon"}, FILE, "2025-01-01"),
        ({"modified": "2024", "created": "2030"}, FILE, "2024-01-01"),
        ({"modified": "2024-02-30", "created": "2020"}, FILE, "2020-01-01"),
        ({"modified": "2024-02-30"}, FILE, None),
        ({"modified": (), "created": "2020"}, FILE, "2020-01-01"),
        ({"modified": ("2020", "2024", "soon")}, None, "2024-01-01"),
        ({"created": 20220501}, None, "2022-05-01"),
        ({"modified": "1970-01-01", "created": "2020"}, None, "1970-01-01"),
        ({"modified": True, "created": 2020}, None, "2020-01-01"),
    ],
)
def test_the_date_stored_is_the_own_modified_else_created_else_the_files(
    tmp_path, metadata, file_modified, expected
):
    database = make_database(tmp_path)
    put_dated(database, "a.md", metadata, file_modified)
    with database.read() as connection:
        (dated,) = dates_of(connection).values()
    day = None if expected is None else datetime.fromisoformat(expected).replace(tzinfo=UTC)
    assert dated == (None if day is None else day.timestamp())


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A store of documents with every odd date as each field, with a date of the file and not."""
    database = make_database(tmp_path_factory.mktemp("odd"))
    for number, value in enumerate(ODD_DATES):
        name = ("a", "B")[number % 2] + f"{number:02}"
        for kind, metadata in {
            "modified": {"modified": value},
            "created": {"created": value},
            "both": {"modified": value, "created": "2021-06-01"},
            "swapped": {"modified": "2021-06-01", "created": value},
            "other": {"Modified": value, "modified.at": value},
        }.items():
            put_dated(database, f"{name}.{kind}", metadata)
            put_dated(database, f"{name}.{kind}.file", metadata, FILE)
    yield database
    database.close()


def test_documents_of_odd_dates_come_newest_first_and_those_without_one_last(odd):
    with odd.read() as connection:
        names = dict(connection.execute(select(documents.c.id, documents.c.path)).all())
        dates = dates_of(connection)
        ids = list_document_ids(connection, documents.c.dataset == "d", "modified", 1000, 0)
        part = list_document_ids(connection, documents.c.dataset == "d", "modified", 7, 90)

    def place(path):
        return (dates[path] is None, -(dates[path] or 0.0), path.lower(), path)

    assert [names[one] for one in ids] == sorted(dates, key=place)
    assert part == ids[90:97]
    assert dates[names[ids[-1]]] is None


@pytest.mark.parametrize(
    ("after", "before"),
    [
        ("2022-05-01", None), (None, "1970-01-01"), ("1969-12-31T23:59:59Z", "1970"),
        ("2021-06-01", "2022-05-01T10:00:00Z"), ("0001", None), ("2025", "2025"),
    ],
)  # fmt: skip
def test_odd_dates_include_the_first_bound_but_not_the_second(odd, after, before):
    first, last = (None if one is None else parse_date(one) for one in (after, before))
    low, high = to_timestamp(after), to_timestamp(before)
    with odd.read() as connection:
        found = paths_of(connection, dated_between(first, last))
        dates = dates_of(connection)
    assert found == sorted(
        path
        for path, dated in dates.items()
        if dated is not None
        and (low is None or dated >= low)
        and (high is None or dated < high)
    )  # fmt: skip


NAMES = [
    "STRASSE.md", "stra\u00dfe.md", "\u0130zmir.md", "izmir.md", "i\u0307zmir.md", "IZMIR.md",
    "\u039f\u03b4\u03cc\u03c2.md", "\u039f\u0394\u038c\u03a3.md", "\ufb01le.md", "FILE.md",
    "\u212aelvin.md", "100%_a.md", "plain.md", "e\u0301.md", "\u00c9.md",
]  # fmt: skip
ASKED = [
    "strasse", "STRA\u00dfE", "ss", "\u00df", "\u0130", "i", "I", "\u0131", "i\u0307", "\u03c2",
    "\u03c3", "\u03a3", "fi", "\ufb01", "k", "\u212a", "%", "_", ".MD", "\u00e9", "e", "qq",
]  # fmt: skip


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A store whose documents have the names as paths, as titles, and as recordings."""
    database = make_database(tmp_path_factory.mktemp("named"))
    for number, name in enumerate(NAMES):
        put(database, "d", name, "x")
        put(database, "d", f"{number}.t", "x", title=name)
        media = (f"{number}.T", name)
        put(database, "d", f"{number}.m", "x", metadata={"media": media, "flag": True, "n": 7})
    yield database
    database.close()


@pytest.mark.parametrize("asked", ASKED)
def test_a_name_is_found_in_any_case_sign_for_sign(named, asked):
    holding = {number for number, name in enumerate(NAMES) if asked.casefold() in name.casefold()}
    expected = [NAMES[number] for number in holding]
    expected += [f"{number}.{kind}" for number in holding for kind in "tm"]
    with named.read() as connection:
        within = allowed_documents(Restriction("d", filter=name_filter(asked)))
        assert paths_of(connection, within) == sorted(expected)


def test_text_in_any_case_is_looked_for_in_text_alone_not_in_numbers_or_truth_values(named):
    for field, asked, expected in [
        ("flag", "TRUE", 0), ("n", "7", 0), ("media", ".t", len(NAMES)), ("media", "STRA", 2),
    ]:  # fmt: skip
        tree = condition(field, Op.TEXT_MATCH_INSENSITIVE, asked)
        with named.read() as connection:
            found = paths_of(connection, allowed_documents(Restriction("d", filter=tree)))
        assert len(found) == expected, field


@pytest.mark.parametrize(
    ("sort", "index"), [("name", "documents_name"), ("modified", "documents_dated")]
)
def test_a_page_of_a_dataset_is_read_from_an_index_in_its_order(odd, sort, index):
    here = documents.c.dataset == "d"
    with odd.read() as connection:
        told = plan_of(connection, lambda: list_document_ids(connection, here, sort, 20, 0))
    assert f"USING COVERING INDEX {index} (dataset=?)" in told
    assert "TEMP B-TREE FOR ORDER BY" not in told


def test_documents_are_looked_up_by_many_paths_through_their_index(odd):
    paths = [f"{number}.md" for number in range(600)]
    wanted = select(documents.c.id).where(
        documents.c.dataset == "d", among(documents.c.path, paths)
    )
    with odd.read() as connection:
        told = plan_of(connection, lambda: connection.execute(wanted).all())
    assert "(dataset=? AND path=?)" in told


def paths_of(connection, allowed):
    return sorted(connection.scalars(select(documents.c.path).where(allowed)))


def plan_of(connection, run):
    """What SQLite says of how it answers the one statement that ``run`` executes."""
    seen = []

    def note(_connection, _cursor, statement, parameters, _context, _many):
        seen.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    run()
    event.remove(connection, "before_cursor_execute", note)
    ((statement, parameters),) = seen
    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
    return "\n".join(row[3] for row in plan)
