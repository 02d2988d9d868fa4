"""What is asked at an edge is logged: ids and times, words only if wanted, and never in the way."""

import json
import logging
import shutil
import sqlite3

import anyio
import pytest
from mcp import Client

from answers.conftest import ROLES, WritingLLM, asking
from answers.test_edges import NDJSON, Answering, posted
from catalog.answers.answering import answer_events, answer_question
from catalog.answers.generating import generate_artifact
from catalog.core.errors import InputError, LLMError
from catalog.core.params import GenerateParams, SearchParams
from catalog.core.retrieval_events import asked_at
from catalog.core.settings.sections import AnswerSettings, LLMSettings, LogSettings
from catalog.evaluation.log_stats import log_stats, log_stats_lines
from catalog.interfaces.mcp import catalog_server
from catalog.interfaces.server.workers import Workers
from catalog.library.library import Library
from catalog.search_v2 import SearchServiceV2
from catalog.store import Database
from catalog.store.backup import back_up, restore
from catalog.store.log_entries import (
    LogEntry,
    add_entries,
    clear_entries,
    drop_old_entries,
    find_entry,
    read_entries,
)
from fakes import open_library
from scripted import write

NOTHING = "no section has any evidence"

CANCEL = "How many days may customers cancel within?"
RIGHT = "Customers may cancel within 14 days of the order [1]."
FOREIGN = "Who won the chess olympiad in Norway?"


@pytest.fixture
def home(project, tmp_path):
    """A store of its own whose log is empty: other tests ask questions of the shared one."""
    return shutil.copytree(project.with_name("unasked"), tmp_path / "home")


@pytest.fixture
def opened(home):
    """Opens searches over the store under these settings, and closes them."""
    services = []

    def open_(llm=None, prices=None, **log):
        plain = open_library(home)
        settings = plain.settings.model_copy(
            update={
                "answers": AnswerSettings(roles=ROLES),
                "log": LogSettings(**log),
                "llm": LLMSettings(**(prices or {})),
            }
        )
        plain.close()
        services.append(SearchServiceV2(Library(settings, model=plain.model, llm=llm)))
        return services[-1]

    yield open_
    for service in services:
        service.close()


def logged(service):
    """The entries, newest first."""
    with service.library.database.read() as connection:
        return list(read_entries(connection))


def ask(service, question=CANCEL, edge="cli", **params):
    with asked_at(edge):
        return answer_question(service, asking(question, **params))


@pytest.mark.slow
def test_equal_questions_have_one_hash_and_words_are_kept_where_the_settings_say_so(opened):
    service = opened(entries=3)
    for question in ("gone at the next requests", CANCEL, f"  {CANCEL.upper()}"):
        ask(service, question)
    answer = ask(service, FOREIGN)
    foreign, again, first = logged(service)
    assert first.query_hash == again.query_hash != foreign.query_hash
    assert foreign.abstained == answer.abstained.reason
    service = opened(query_text=True)
    ask(service, "How many days?\ud800")
    assert logged(service)[0].query == "How many days?\ufffd"


def writing(*replies):
    return WritingLLM(replies=list(replies), prompts=[])


def test_an_entry_has_the_passages_and_times_of_its_answer_and_no_word_of_it(opened, home):
    service = opened()
    answer = ask(service, edge="http", role="employee")
    (entry,) = logged(service)
    assert (entry.id, entry.verb, entry.edge, entry.role) == (1, "ask", "http", "employee")
    assert entry.passages == tuple((one.chunk_id, one.score) for one in answer.results)
    assert (entry.elapsed_ms, entry.retrieval_ms) == (answer.elapsed_ms, answer.results.elapsed_ms)
    assert [name for name, _, _ in entry.stages] == [stage.name for stage in answer.stages]
    assert (entry.query, entry.model, entry.generation_ms, entry.errors) == (None, None, None, ())
    with sqlite3.connect(home / "catalog.db") as connection:
        (row,) = connection.execute("SELECT * FROM query_log").fetchall()
    for word in ("cancel", "customers", "14 days"):
        assert word not in str(row).casefold()


@pytest.mark.slow
def test_time_and_cost_of_a_model_are_reported_and_none_if_unknown(opened):
    prices = {"prices": ("other: 1, 1", "writer: 2.0, 10")}
    answer = ask(opened(writing(RIGHT), prices))
    service = opened(writing(RIGHT))
    ask(service)
    unpriced, priced = logged(service)
    assert (priced.model, priced.prompt_tokens) == ("writer", answer.tokens.prompt)
    assert priced.cost == (answer.tokens.prompt * 2.0 + answer.tokens.reply * 10.0) / 1_000_000
    assert priced.generation_ms == next(one.ms for one in answer.stages if one.name == "write")
    assert (unpriced.reply_tokens, unpriced.cost) == (answer.tokens.reply, None)


def test_the_agent_and_its_profile_are_reported(opened, home):
    (home / "agents").mkdir()
    (home / "agents" / "brief.toml").write_text('profile = "cheap"\n')
    service = opened(writing(RIGHT))
    ask(service, agent="brief")
    with pytest.raises(InputError):
        ask(service, agent="What no agent is called")
    failed, entry = logged(service)
    assert (entry.agent, entry.profile) == ("brief", "cheap")
    assert (failed.agent, failed.profile, failed.errors) == (None, None, ("InputError",))


def test_a_model_that_fails_is_logged_by_its_error_without_the_message(opened):
    service = opened(writing([LLMError("the key sk-123 is refused")]))
    assert ask(service).model is None
    (entry,) = logged(service)
    assert entry.errors == ("write: LLMError",)
    assert entry.generation_ms is not None
    assert "sk-123" not in repr(entry)


def test_a_question_that_fails_and_one_nobody_waits_for_are_logged_as_errors(opened):
    service = opened()
    with pytest.raises(InputError):
        ask(service, role="nobody here")
    with asked_at("http"):
        events = answer_events(service, asking(CANCEL))
        next(events)
        events.close()
    left, failed = logged(service)
    assert (failed.errors, failed.role, failed.retrieval_ms) == (("InputError",), None, None)
    assert left.errors == ("GeneratorExit",)


def test_an_artifact_is_logged_with_its_topic_and_the_time_of_its_searches(opened):
    service = opened(query_text=True)
    with asked_at("cli"):
        topic = "the cancellation of an order by customers"
        made = generate_artifact(service, GenerateParams("workflow", topic=topic), llm=write())
        with pytest.raises(InputError):
            generate_artifact(service, GenerateParams("poem", topic=topic))
    failed, entry = logged(service)
    assert (entry.verb, entry.query) == ("generate", f"workflow: {topic}")
    assert [chunk_id for chunk_id, _ in entry.passages] == [one.chunk_id for one in made.results]
    assert 0 < entry.retrieval_ms <= entry.elapsed_ms == made.elapsed_ms
    assert (entry.abstained, entry.profile, failed.errors) == (NOTHING, "balanced", ("InputError",))


@pytest.mark.slow
def test_each_edge_is_reported(opened):
    service = opened()
    engine = Answering(service)
    posted(engine, {"question": CANCEL})
    posted(engine, {"question": CANCEL}, NDJSON)
    server = catalog_server(engine, Workers(2, 20), with_answers=True)

    async def ask_as_agent():
        async with Client(server) as client:
            await client.call_tool("ask", {"question": CANCEL})

    anyio.run(ask_as_agent)
    assert [one.edge for one in logged(service)] == ["mcp", "http", "http"]


@pytest.mark.slow
def test_searches_are_logged_only_if_the_settings_say_so_and_what_no_edge_asked_never(opened):
    params = SearchParams("cancel")
    for verbs, expected in ((("ask",), []), (("ask", "search"), ["search"]), ((), ["search"])):
        service = opened(verbs=verbs)
        with asked_at("mcp"):
            service.run_logged(params)
        answer_question(service, asking(CANCEL))
        service.search("cancel")
        assert [entry.verb for entry in logged(service)] == expected


def test_a_role_leaves_no_trace_of_what_it_may_not_see(opened):
    service = opened()
    ask(service, "What is the salary of a director?", role="guest")
    ask(service, "What is the salary of a director?", role="lead")
    with service.library.database.read() as connection:
        rows = connection.exec_driver_sql(
            "SELECT chunk_id FROM chunks JOIN documents ON documents.id = document_id "
            "WHERE path = 'salaries.md'"
        )
        hidden = set(rows.scalars())
    lead, guest = logged(service)
    assert hidden & {chunk_id for chunk_id, _ in lead.passages}
    assert not hidden & {chunk_id for chunk_id, _ in guest.passages}


@pytest.mark.slow
def test_entries_that_another_writer_keeps_out_wait_and_go_with_the_next(opened, home):
    service = opened()
    ask(service)
    with sqlite3.connect(home / "catalog.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert ask(service).citations
        other.execute("ROLLBACK")
    assert len(logged(service)) == 1
    ask(service)
    assert len(logged(service)) == 3


def test_a_log_that_cannot_be_written_fails_no_answer_and_a_line_says_so(opened, home, caplog):
    service = opened()
    with sqlite3.connect(home / "catalog.db") as other:
        other.execute("DROP TABLE query_log")
    with caplog.at_level(logging.WARNING):
        assert ask(service).citations
        assert ask(service).citations
    assert [record.getMessage()[:51] for record in caplog.records] == [
        "1 questions are missing from the log (catalog logs)"
    ]


@pytest.fixture
def store(tmp_path):
    """An empty store whose log has entries 1 to 10, asked at 1 to 10 seconds."""
    database = Database.at(tmp_path / "store")
    with database.write() as connection:
        entries = [LogEntry(float(at), "ask", "cli", 1.0, "q") for at in range(1, 11)]
        add_entries(connection, entries, keep_text=True)
    yield database
    database.close()


def numbers(connection):
    return [entry.id for entry in read_entries(connection)]


def test_old_entries_and_those_beyond_the_number_go_some_with_each_write(store, monkeypatch):
    monkeypatch.setattr("catalog.store.log_entries._DROPPED_AT_ONCE", 2)
    with store.write() as connection:
        assert drop_old_entries(connection, before=4.0, at_most=100) == 2
        assert numbers(connection) == [10, 9, 8, 7, 6, 5, 4, 3]
        assert drop_old_entries(connection, before=4.0, at_most=100) == 1
        assert drop_old_entries(connection, before=4.0, at_most=5) == 2
        assert numbers(connection) == [10, 9, 8, 7, 6]
        assert drop_old_entries(connection, before=4.0, at_most=5) == 0
        assert clear_entries(connection, before=8.0) == 2
        assert (find_entry(connection, 7), find_entry(connection, 8) is None) == (None, False)
        assert clear_entries(connection) == 3


def test_a_copy_holds_the_log(store, tmp_path):
    store.close()
    back_up(store.file, tmp_path / "copy.db")
    store.file.unlink()
    restore(tmp_path / "copy.db", store.file, locks=tmp_path)
    again = Database.at(store.file.parent)
    with again.read() as connection:
        assert len(numbers(connection)) == 10
    again.close()


def entry(ms, **more):
    return LogEntry(1.0, "ask", "cli", ms, **{"query_hash": "aa", "retrieval_ms": ms, **more})


def test_stats_have_percentiles_shares_failures_and_costs():
    entries = [entry(float(ms)) for ms in range(1, 19)]
    why = "an estimated probability of 12% that the passages answer; 50% is needed"
    entries.append(entry(19.0, abstained=why, query="why?"))
    entries.append(entry(20.0, abstained=why.replace("12", "3"), query_hash="bb"))
    entries.append(entry(5.0, generation_ms=100.0, prompt_tokens=7, reply_tokens=3, cost=0.5))
    entries.append(entry(5.0, prompt_tokens=2, reply_tokens=1, errors=("write: LLMError",)))
    entries.append(LogEntry(1.0, "ask", "cli", 1.0, errors=("InputError",)))
    stats = log_stats(entries)
    # of 1..20 and two fives: sorted 1 2 3 4 5 5 5 6 … 20; p50 between the 11th (9) and 12th (10)
    assert stats["retrieval_ms"]["p50"] == 9.5
    assert stats["generation_ms"] == {"p50": 100.0, "p95": 100.0}
    assert stats["abstained"] == pytest.approx(2 / 22)
    assert stats["abstention_reasons"] == {
        "an estimated probability of #% that the passages answer; #% is needed": 2
    }
    assert stats["abstained_queries"] == {"why?": 1, "bb": 1}
    assert (stats["failed"], stats["errors"]) == (1, {"write: LLMError": 1, "InputError": 1})
    assert (stats["prompt_tokens"], stats["reply_tokens"], stats["cost"]) == (9, 4, 0.5)
    assert (stats["priced"], stats["written"]) == (1, 2)
    assert any("0.5000 for 1 of 2 answers" in line for line in log_stats_lines(stats))
    assert log_stats([])["abstained"] is None


@pytest.mark.slow
def test_the_command_lists_shows_counts_and_clears(catalog_logs, opened):
    service = opened(query_text=True)
    ask(service)
    ask(service, FOREIGN)
    out = catalog_logs("queries")
    assert out.splitlines()[0].split() == [
        "id", "asked", "at", "edge", "verb", "ms", "outcome", "question",
    ]  # fmt: skip
    assert f"no answer   {FOREIGN}" in out
    assert [one["id"] for one in json.loads(catalog_logs("queries", "--json"))] == [2, 1]
    assert catalog_logs("queries", "--since", "2999-01-01") == "The log is empty.\n"
    assert "passage     " in catalog_logs("show", "1")
    assert json.loads(catalog_logs("show", "1", "--json"))["query"] == CANCEL
    assert "not answered   50.0% of questions" in catalog_logs("stats", "--since", "1h")
    assert "such as 24h or 7d" in catalog_logs("stats", "--since", "7x", code=1)
    assert json.loads(catalog_logs("stats", "--json"))["entries"] == 2
    assert catalog_logs("clear", "--before", "1d") == "0 dropped\n"
    assert catalog_logs("clear") == "2 dropped\n"
    assert "has no entry 1" in catalog_logs("show", "1", code=1)


@pytest.mark.parametrize(
    ("verbs", "words", "told"),
    [
        (None, None, ["logged: ask, generate; searches are not", "questions as hashes"]),
        ("ask,search", "1", ["logged: ask, search\n"]),
    ],
)
def test_where_the_log_is_shown_it_says_what_is_logged(
    home, monkeypatch, capsys, verbs, words, told
):
    from catalog.interfaces.cli import main

    for name, value in (("VERBS", verbs), ("QUERY_TEXT", words)):
        if value is not None:
            monkeypatch.setenv(f"IDX_LOG__{name}", value)
    for command in ("queries", "stats"):
        monkeypatch.setattr("sys.argv", ["catalog", "--home", str(home), "logs", command])
        with pytest.raises(SystemExit):
            main()
        err = capsys.readouterr().err
        assert all(one in err for one in told), err


@pytest.fixture
def catalog_logs(home, monkeypatch, capsys):
    """Runs ``catalog logs`` on the store; what it prints."""
    from catalog.interfaces.cli import main

    def run(*arguments, code=0):
        monkeypatch.setattr("sys.argv", ["catalog", "--home", str(home), "logs", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code
        printed = capsys.readouterr()
        return printed.out or printed.err

    return run
