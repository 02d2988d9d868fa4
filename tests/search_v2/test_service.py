"""Searching: what is found, what is refused, what is said about it."""

import os
from functools import partial

import pytest
from filelock import FileLock
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from sqlalchemy import update

from catalog.core import errors
from catalog.core.errors import (
    FilterError,
    InputError,
    QueryError,
    StageFailedError,
    UnknownDatasetError,
    UnknownValueError,
)
from catalog.core.params import MODES
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from catalog.store.database import POINTS_LOCK
from catalog.store.schema import documents
from fakes import WordEncoder, open_library, open_qdrant_library, write
from small_documents import NOTES
from stores import open_store
from tables import table


@pytest.fixture
def library(tmp_path):
    with open_store(NOTES, tmp_path) as opened:
        yield opened


@pytest.fixture
def notes(tmp_path):
    return tmp_path / "notes"


@pytest.fixture
def own_service(library):
    """For a test that changes its store."""
    return SearchServiceV2(library)


@pytest.fixture(scope="module")
def shared(store_kind, tmp_path_factory):
    with open_store(NOTES, tmp_path_factory.mktemp("shared")) as opened:
        yield opened


@pytest.fixture
def service(shared):
    """A service on a store that no test changes."""
    return SearchServiceV2(shared)


def stage(answer, name):
    return next(one for one in answer.stages if one.name == name)


@pytest.mark.both_stores
def test_a_hit_cites_the_exact_lines_and_characters_of_its_document(service):
    hit = service.search("revoke a leaked key", dataset="notes")[0]
    text = NOTES["notes/keys.md"]
    assert hit.path == "keys.md"
    assert text[hit.start_offset : hit.end_offset] == hit.text
    lines = text.splitlines()[hit.locator.line_start - 1 : hit.locator.line_end]
    assert "\n".join(lines).strip() == hit.text
    assert hit.snippet in hit.text


@pytest.mark.both_stores
@pytest.mark.parametrize("mode", MODES)
def test_an_explanation_adds_up_to_the_score_in_every_mode(service, mode):
    for hit in service.search("keys command", dataset="notes", mode=mode, explain=True):
        parts = [part.contribution for part in hit.explain.contributions]
        assert sum(parts) + hit.explain.bonus == hit.score == hit.explain.score


def test_an_empty_scope_gives_no_answer_and_none_means_all_documents(service):
    assert len(service.search("keys", dataset="notes", doc_ids=[])) == 0
    assert len(service.search("keys", dataset="notes", doc_ids=None)) > 1


@pytest.mark.parametrize("name", ["bread.txt", "notes:bread.txt"])
@pytest.mark.parametrize("mode", MODES)
def test_a_scope_lets_nothing_else_answer(service, name, mode):
    found = service.search("bread keys backups", dataset="notes", doc_ids=[name], mode=mode)
    assert {hit.path for hit in found} == {"bread.txt"}


def test_a_scope_of_unknown_documents_is_nothing_and_says_so(service):
    found = service.search("keys", dataset="notes", doc_ids=["gone.md"])
    assert len(found) == 0
    assert stage(found, "scope").note.startswith("0 documents")


@pytest.mark.both_stores
@pytest.mark.parametrize(
    "filters",
    [
        "tag=ops",
        {"tags": "ops"},
        ["tag=ops", "file_type=md"],
        MetadataFilters(
            filters=[MetadataFilter(key="tags", value="ops", operator=FilterOperator.EQ)]
        ),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_filter_holds_in_every_mode_and_every_form(service, filters, mode):
    found = service.search("bread keys backups", dataset="notes", filters=filters, mode=mode)
    assert {hit.path for hit in found} == {"keys.md"}


@pytest.mark.both_stores
@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "%", "_", "' OR 1=1 --", "\U0001f600"])
def test_any_text_is_safe_as_document_name_filter_value_and_dataset(service, text):
    assert len(service.search("keys", dataset="notes", doc_ids=[text])) == 0
    if text == "\ud800":
        with pytest.raises(FilterError, match="Unicode"):
            service.search("keys", dataset="notes", filters={"title": text})
        return
    assert len(service.search("keys", dataset="notes", filters={"title": text})) == 0
    assert len(service.search("keys", dataset="notes", filters={"path": {"text_match": text}})) == 0
    with pytest.raises(UnknownDatasetError):
        service.search("keys", dataset=text)


@pytest.mark.both_stores
@pytest.mark.parametrize("mode", MODES)
def test_a_phrase_must_stand_in_every_hit_whichever_leg_finds_it(service, mode):
    found = service.search('bread keys "thirty days"', dataset="notes", mode=mode)
    assert [hit.path for hit in found] == ["guides/backup.md"]
    assert found.notes == ()
    none = service.search('"days thirty" bread', dataset="notes", mode=mode, strict=True)
    assert len(none) == 0
    assert '"days thirty"' in none.notes[0]


@pytest.mark.both_stores
@pytest.mark.parametrize("mode", MODES)
@table("query, words, quoted")
def test_a_phrase_that_no_passage_holds_is_searched_for_by_its_words(
    service, query, words, quoted, mode
):
    found = service.search(query, dataset="notes", mode=mode)
    assert [hit.path for hit in found] == [
        hit.path for hit in service.search(words, dataset="notes", mode=mode)
    ]
    assert "without the quotes" in found.notes[0]
    assert all(phrase in hit.text for hit in found for phrase in quoted)


def test_a_phrase_outside_of_scope_and_filters_counts_as_held_by_no_passage(service):
    narrow = [{"filters": "tag=ops"}, {"docs": ["keys.md"]}, {"file_type": "txt"}]
    for where in narrow:
        found = service.search('keys bread "thirty days"', dataset="notes", **where)
        assert (len(found) > 0, "no passage has" in found.notes[0]) == (True, True)
    found = service.search('bread "thirty days" -backups', dataset="notes")
    assert "guides/backup.md" not in {hit.path for hit in found}
    found = service.search('"thirty days" "admin console"', dataset="notes")
    assert (len(found) > 1, "together" in found.notes[0]) == (True, True)


def test_a_typed_part_is_not_bound_by_a_phrase_that_no_passage_holds(service):
    found = service.search('lex: "days thirty" bread / vec: bread', dataset="notes")
    assert stage(found, "lexical").note.startswith("bm25: ")
    assert "bm25: 0 hits" not in stage(found, "lexical").note
    assert '"days thirty"' in found.notes[0]


@pytest.fixture(scope="module")
def shell(store_kind, tmp_path_factory):
    """Notes of a command line; the option of each is also a word elsewhere."""
    files = {
        "find": "# Finding files\n\n`find . -newest` sorts, and find --oldest the other way.\n",
        "tar": "# Archives\n\ntar -xzf a.tgz unpacks.\n",
        "cake": "# Cake\n\nThe newest cake has banana, the oldest no well-liked cream.\n",
        "pie": "# Pie\n\nA pie, liked without banana-cream cake.\n",
    }
    files = {f"shell/{name}.md": text for name, text in files.items()}
    with open_store(files, tmp_path_factory.mktemp("commands")) as library:
        yield library


@pytest.mark.both_stores
@pytest.mark.parametrize("mode", MODES)
@table("query, first")
def test_a_word_that_documents_write_with_a_minus_is_looked_for(shell, query, first, mode):
    found = SearchServiceV2(shell).search(query, dataset="shell", mode=mode)
    assert found[0].path == first
    assert "read as a word" in found.notes[0]
    assert "excluding" not in stage(found, "normalise").note


@pytest.mark.parametrize("query", ["cake -banana", "cake \u2013banana", "cake -liked"])
def test_a_word_that_no_document_writes_as_a_flag_is_excluded(shell, query):
    found = SearchServiceV2(shell).search(query, dataset="shell")
    assert not {"cake.md", "pie.md"} & {hit.path for hit in found}
    assert found.notes == ()


@pytest.mark.parametrize("mode", MODES)
def test_a_quoted_word_is_required_and_an_excluded_phrase_kept_out_in_every_mode(service, mode):
    found = service.search('bread keys "backups"', dataset="notes", mode=mode)
    assert {hit.path for hit in found} == {"guides/backup.md"}
    for excluded in ('-"thirty days"', "-midnight"):
        rest = service.search(f"bread keys {excluded}", dataset="notes", mode=mode)
        assert "guides/backup.md" not in {hit.path for hit in rest}
        assert len(rest) > 0


@table("call, error")
def test_a_bad_call_gets_a_typed_error(service, call, error):
    with pytest.raises(getattr(errors, error)):
        service.search(**{"query": "keys", "dataset": "notes", **call})


@pytest.mark.parametrize(
    "query", ['c++ "unbalanced title:x AND *', "the of and", "x" * 10_000, "\x00 keys", "'; DROP"]
)
@pytest.mark.parametrize("mode", MODES)
def test_any_query_text_is_safe(service, query, mode):
    answer = service.search(query, dataset="notes", mode=mode)
    assert all(one.status != "failed" for one in answer.stages)


def test_a_failing_leg_is_a_failed_stage_and_the_other_answers(tmp_path):
    encoder = WordEncoder()
    encoder.down = True
    with open_store(NOTES, tmp_path, encoder) as library:
        service = SearchServiceV2(library)
        answer = service.search("bake bread", dataset="notes")
        assert answer[0].path == "bread.txt"
        assert stage(answer, "vector").status == "failed"
        assert "no answer" in stage(answer, "vector").note
        with pytest.raises(StageFailedError, match="vector"):
            service.search("bake bread", dataset="notes", strict=True)
        with pytest.raises(Exception, match="no answer"):
            service.search("bake bread", dataset="notes", mode="vector")


def test_a_second_holder_of_the_index_gets_exact_results_and_a_note(tmp_path):
    home = tmp_path / "home"
    with open_store(NOTES, tmp_path, vector_engine="qdrant") as library:
        first = SearchServiceV2(library).search("bake bread", dataset="notes", mode="vector")
    [lock] = (home / "indexes").rglob(POINTS_LOCK)
    with FileLock(lock), open_qdrant_library(home) as other:
        second = SearchServiceV2(other).search("bake bread", dataset="notes", mode="vector")
        assert "open elsewhere" in stage(second, "vector").note
        assert [hit.chunk_id for hit in second] == [hit.chunk_id for hit in first]
        with pytest.raises(StageFailedError, match="vector"):
            SearchServiceV2(other).search("bake", dataset="notes", mode="vector", strict=True)


def test_no_document_gives_more_passages_than_the_cap_and_the_answer_is_filled(tmp_path):
    long = "\n\n".join(f"# Part {i}\n\n" + f"apple pie number {i}. " * 15 for i in range(40))
    files = {"many/long.md": long}
    files |= {f"many/{n}.md": f"One apple, in a note on {'filler ' * 30}{n}." for n in range(6)}
    depths = {"fts_top_k": 5, "vector_top_k": 5, "overfetch": 1}
    with open_store(files, tmp_path, **depths) as library:
        answer = SearchServiceV2(library).search("apple pie", dataset="many", top_k=8)
        counts = [hit.path for hit in answer].count("long.md")
        assert counts == 3
        assert len(answer) == 8


@pytest.mark.both_stores
def test_a_repeated_query_is_embedded_once_and_the_stage_says_so(tmp_path):
    encoder = WordEncoder()
    with open_store(NOTES, tmp_path, encoder) as library:
        service = SearchServiceV2(library)
        service.search("bake bread", dataset="notes")
        asked = len(encoder.texts)
        again = service.search("bake bread", dataset="notes")
        assert len(encoder.texts) == asked
        assert "cached" in stage(again, "vector").note
        service.close()


def test_the_json_form_holds_what_the_contract_names(service):
    found = service.search("keys", dataset="notes", explain=True).to_dict()
    assert set(found) == {
        "query", "dataset", "datasets", "mode", "results", "stages", "elapsed_ms", "confidence",
        "low_confidence", "notes", "agent",
    }  # fmt: skip
    assert set(found["results"][0]) == {
        "rank", "score", "path", "source_doc_id", "dataset", "docid", "chunk_id", "title",
        "heading_path",
        "sections", "modality", "locator", "start_offset", "end_offset", "text", "snippet",
        "snippet_lines",
        "matches", "citation", "snippet_locator", "moment", "link", "evidence", "evidence_at",
        "file_type", "source_type", "tags", "created", "modified", "date",
        "relevance", "certainty", "explain",
    }  # fmt: skip
    assert set(found["results"][0]["locator"]) == {
        "unit", "start", "end", "file", "page", "page_end", "line_start", "line_end",
        "time_start", "time_end", "cells",
    }  # fmt: skip
    assert set(found["stages"][0]) == {"name", "status", "ms", "note"}


@pytest.mark.slow
@pytest.mark.both_stores
@pytest.mark.parametrize("mode", MODES)
def test_a_search_is_whole_even_when_documents_change_during_every_attempt(
    own_service, library, monkeypatch, notes, tmp_path, mode
):
    """The writer is another process's: a second library on the same store."""
    revisions = iter(range(100))
    engines = (library.indexes.lexical("notes"), library.indexes.vector("notes", "flat"))
    monkeypatch.setattr(library.indexes, "vector", lambda *_: engines[1])
    with open_library(tmp_path / "home") as other:

        def changing(search):
            def searched(*arguments):
                hits = search(*arguments)
                (notes / "keys.md").write_text(f"# Keys\n\nrevoke a key, {next(revisions)}")
                Indexer(other).update("notes")
                return hits

            return searched

        for engine, name in zip(engines, ("search", "at"), strict=True):
            monkeypatch.setattr(engine, name, changing(getattr(engine, name)))
        answer = own_service.search("revoke a key", dataset="notes", mode=mode)
    assert "keys.md" in {hit.path for hit in answer}
    assert "kept changing" not in stage(answer, "fuse").note


@table("narrowed, paths", list)
def test_documents_are_narrowed_as_people_name_them(service, narrowed, paths):
    query = "bread keys backups"
    assert {hit.path for hit in service.search(query, dataset="notes", **narrowed)} == set(paths)
    nodes = service.retrieve(query, dataset="notes", **narrowed)
    assert {node.node.chunk.path for node in nodes} == set(paths)


def test_a_type_that_no_document_has_is_refused_with_those_there_are(service):
    with pytest.raises(UnknownValueError, match=r"file types: md \(\d\), txt"):
        service.search("keys", dataset="notes", file_type="pfd")
    with pytest.raises(UnknownValueError) as refused:
        service.search("keys", dataset="notes", file_type="pfd", docs=["bread.txt"])
    assert "md" not in str(refused.value), "what may not answer is not told of"
    assert service.search("keys", dataset="notes", file_type="md").notes == ()


def test_a_note_says_that_a_query_has_only_common_words(service):
    answer = service.search("whom whose", dataset="notes", mode="lexical")
    assert "too common to search for" in answer.notes[0]


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_a_misspelt_word_is_searched_as_it_is_spelt_and_a_note_says_so(
    library, own_service, notes, mode
):
    (notes / "dough.md").write_text("Feed the sourdough before the keys.")
    Indexer(library).update("notes")
    found = own_service.search("sourdoguh", dataset="notes", mode=mode)
    [hit] = [hit for hit in found if hit.path == "dough.md"]
    assert hit.snippet[slice(*hit.matches[0])] == "sourdough"
    assert (hit.certainty, found.low_confidence) == ("exact", False)
    [note] = found.notes
    assert "did you mean 'sourdough'? 'sourdoguh'" in note
    assert own_service.search("sourdough", dataset="notes", mode=mode).notes == ()
    nodes = own_service.retrieve("sourdoguh", dataset="notes", mode=mode)
    assert "dough.md" in [node.node.metadata["path"] for node in nodes]
    quoted = own_service.search('"sourdoguh starter"', dataset="notes", mode=mode, strict=True)
    assert not any("did you mean" in note for note in quoted.notes)


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
@pytest.mark.parametrize("query", ["-O2", '"-O2"'])
def test_a_text_with_the_signs_of_the_query_comes_first_and_is_the_exact_one(
    library, own_service, notes, query, mode
):
    (notes / "valve.md").write_text("Press the O2 valve. O2 is oxygen, O2.")
    (notes / "gcc.md").write_text(
        "The compiler builds it with -O2 and many other flags of its own."
    )
    Indexer(library).update("notes")
    found = own_service.search(query, dataset="notes", mode=mode)
    assert [hit.path for hit in found if hit.certainty == "exact"] == ["gcc.md"]
    assert (found[0].path, found[1].path) == ("gcc.md", "valve.md")


def test_a_query_of_signs_is_answered_by_signs_alone(library, own_service, notes):
    (notes / "arrow.md").write_text("write a -> b")
    Indexer(library).update("notes")
    assert [hit.path for hit in own_service.search("->", dataset="notes")] == ["arrow.md"]
    missing = own_service.search('"=>"', dataset="notes")
    assert (list(missing), missing.notes) == ([], ("no passage contains these signs",))
    with pytest.raises(QueryError, match="nothing to search for"):
        own_service.search("-", dataset="notes")


@pytest.fixture(scope="module")
def dated_library(store_kind, tmp_path_factory):
    """Documents of three years, the last dated by its file alone."""
    root = tmp_path_factory.mktemp("dates")
    folder = root / "dated"
    folder.mkdir()
    told = {
        "old.md": "created: 2022-05-09\ntags: [ops]",
        "new.md": "created: 2021-01-01\nmodified: 2024-03-05",
    }
    for name, fields in told.items():
        (folder / name).write_text(f"---\n{fields}\n---\nRotate the keys of {name}.\n")
    (folder / "plain.txt").write_text("Rotate the keys of plain.txt.\n")
    os.utime(folder / "plain.txt", (0, 86_400 * 365))  # the first day of 1971
    with open_library(root / "home") as library:
        Indexer(library).build(folder, "dated")
        yield library


@pytest.fixture
def dated(dated_library):
    return SearchServiceV2(dated_library)


@pytest.mark.both_stores
@pytest.mark.parametrize("mode", MODES)
@table("bounds, expected", list)
def test_dates_bound_which_documents_answer(dated, mode, bounds, expected):
    found = dated.search("rotate keys", dataset="dated", mode=mode, **bounds)
    assert {hit.path for hit in found} == set(expected)


@pytest.mark.parametrize("bound", ["after", "before"])
@pytest.mark.parametrize("text", ["last week", "2024-13", "yesterday", "05/06/2024", ""])
def test_a_bound_that_is_no_date_is_refused_with_one_that_is(dated, bound, text):
    with pytest.raises(InputError, match=rf"{bound} must be a date such as 2026-03-31"):
        dated.search("keys", dataset="dated", **{bound: text})


def test_a_hit_has_type_tags_and_dates_of_its_document(dated):
    hits = {hit.path: hit for hit in dated.search("rotate keys", dataset="dated")}
    told = {
        path: (hit.file_type, hit.source_type, hit.tags, hit.created, hit.modified, hit.date)
        for path, hit in hits.items()
    }
    first_of_1971 = "1971-01-01T00:00:00Z"
    file_time = told["old.md"][4]
    assert told == {
        "old.md": ("md", "file", ("ops",), "2022-05-09", file_time, "2022-05-09T00:00:00Z"),
        "new.md": ("md", "file", (), "2021-01-01", "2024-03-05", "2024-03-05T00:00:00Z"),
        "plain.txt": ("txt", "file", (), None, first_of_1971, first_of_1971),
    }
    assert file_time > "2025", "the file's own, where the document does not say"


def test_a_field_that_the_designs_name_may_be_asked_for_where_no_document_has_it(service):
    assert len(service.search("keys", dataset="notes", filters="agent_hint=writer")) == 0


@table("call, words, nearest", list)
def test_where_nothing_is_found_it_says_what_was_searched_and_what_is_nearest(
    service, call, words, nearest
):
    found = service.search(**{"query": "flour", "dataset": "notes", **call})
    assert len(found) == 0
    assert [word for word in words if word not in found.searched] == []
    assert nearest in (found.nearest or [""])
    narrowed = {"docs": ["keys.md"], "filters": "tag=ops", "after": "2090"}
    found_of = service.search("flour", dataset="notes", **narrowed)  # among those that may answer
    assert (len(found_of), found_of.nearest) == (0, ("keys.md",))
    assert found.to_dict()["searched"] == found.searched


@pytest.fixture
def aged(library, tmp_path):
    """Notes that say when they were written, and one that does not."""
    folder = tmp_path / "aged"
    write(
        folder,
        old_dot_md="---\ncreated: 2001-05-01\n---\nA walrus, a walrus, a walrus.\n",
        new_dot_md="---\ncreated: 2024-06-01T00:30+02:00\n---\nA walrus came in spring.\n",
        newest_dot_md="---\ncreated: 2024-05-31T23:30-02:00\n---\nThe walrus left us in rain.\n",
        undated_dot_md="A walrus of no age at all, or so it seems to be.\n",
    )
    Indexer(library).build(folder, "aged")
    with library.database.write() as connection:
        connection.execute(
            update(documents).where(documents.c.path == "undated.md").values(dated=None)
        )
    return SearchServiceV2(library)


@pytest.mark.parametrize("mode", MODES)
def test_passages_sorted_by_date_are_the_best_ones_newest_first(aged, mode):
    best = aged.search("walrus", dataset="aged", mode=mode)
    assert [hit.path for hit in aged.search("walrus", dataset="aged", mode=mode, sort="best")] == [
        hit.path for hit in best
    ]
    found = aged.search("walrus", dataset="aged", mode=mode, sort="date")
    assert [hit.path for hit in found] == ["newest.md", "new.md", "old.md", "undated.md"]
    assert [hit.rank for hit in found] == [1, 2, 3, 4]
    two = aged.search("walrus", dataset="aged", mode=mode, sort="date", top_k=2)
    assert {hit.path for hit in two} == {hit.path for hit in best[:2]}
    nodes = aged.retrieve("walrus", dataset="aged", mode=mode, sort="date")
    assert [node.metadata["path"] for node in nodes] == [hit.path for hit in found]


@pytest.mark.parametrize("mode", MODES)
def test_recency_lowers_scores_by_age_and_the_explanation_says_how(aged, mode):
    plain = {hit.path: hit for hit in aged.search("walrus", dataset="aged", mode=mode)}
    found = aged.search(
        "walrus", dataset="aged", mode=mode, recency_half_life_days=3650, explain=True
    )
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    for hit in found:
        recency = hit.explain.recency
        assert recency.factor == 2 ** (-recency.age_days / 3650)
        assert hit.explain.fused == plain[hit.path].score
        assert hit.score == hit.explain.score == hit.explain.fused * recency.factor
    by_path = {hit.path: hit.explain.recency for hit in found}
    assert by_path["undated.md"].factor == 1.0
    assert by_path["old.md"].age_days - by_path["newest.md"].age_days == pytest.approx(8432, abs=1)


def test_recency_is_off_by_default_and_a_setting_that_a_call_may_turn_off(aged):
    assert aged.search("walrus", dataset="aged", explain=True)[0].explain.recency is None
    on = aged.with_settings({"recency_half_life_days": 30.0})
    assert on.search("walrus", dataset="aged", mode="lexical")[0].path == "undated.md"
    off = on.search("walrus", dataset="aged", explain=True, recency_half_life_days=0)
    assert off[0].explain.recency is None


def test_a_query_for_the_newest_favours_newer_documents_and_lets_archived_ones_fade(
    library, tmp_path
):
    dates = {"mid": "2023-02-01", "late": "2025-02-01", "early": "2021-02-01"}
    told = {name: f"date: {date}" for name, date in dates.items()}
    told |= {"gone": "date: 2025-02-01\nstatus: archived", "none": "superseded_by: late.md"}
    made = {f"{k}_dot_md": f"---\n{it}\n---\nThe fare of {k} walks.\n" for k, it in told.items()}
    write(tmp_path / "fares", **made)
    Indexer(library).build(tmp_path / "fares", "fares")
    service = SearchServiceV2(library)

    def ask(query, **more):
        results = service.search(query, dataset="fares", explain=True, **more)
        return [hit.path for hit in results], results

    for query in ("latest fare", "what is the current fare?", "aktuelle fare"):
        paths, results = ask(query)
        assert paths[:3] == ["late.md", "mid.md", "early.md"]
        assert "favours newer documents" in results.stages[1].note
    for query in ("fare", "Traceback (most recent call last): fare"):
        plain, results = ask(query)
        assert {hit.explain.recency for hit in results} == {None}
    assert ask("latest fare", recency_half_life_days=0)[0] == plain


def test_conditions_in_a_query_filter_where_documents_fit_them(library, tmp_path):
    tagged = "---\ntags: [{}]\n---\nThe zebra drinks at {}.\n"
    write(tmp_path / "zoo", a_dot_md=tagged.format("ops", 5), b_dot_md=tagged.format("dev", 6))
    (tmp_path / "zoo" / "zebra.txt").write_text("A zebra has stripes.\n")
    Indexer(library).build(tmp_path / "zoo", "zoo")
    a, b, text = "a.md", "b.md", "zebra.txt"
    asked = {
        "zebra tag:ops": {a},
        "-tag:ops zebra": {b, text},
        'zebra -file:"a.md"': {b, text},
        "file:a.md zebra": {a},
        "path:*.md type:markdown zebra -tag:dev": {a},
        "lex: zebra type:txt": {text},
    }
    as_text = ["zebra tag:nope", "zebra type:module", "file:a.md"]
    search = partial(SearchServiceV2(library).search, dataset="zoo", mode="lexical")
    for query, paths in asked.items():
        assert {hit.path for hit in search(query)} == paths, query
        assert "filtered by " in search(query).stages[1].note
    for results in map(search, as_text):
        assert "filtered by " not in results.stages[1].note
        assert "read as a word; to filter" in results.notes[0]
    assert "filtered by " not in search('zebra "tag:ops"').stages[1].note
    (tmp_path / "zoo" / "long.md").write_text("# Zebra\n\n" + f"{'The zebra ran. ' * 60}\n\n" * 9)
    Indexer(library).build(tmp_path / "zoo", "zoo")
    assert len(search("zebra file:long.md")) == len(search("zebra", docs=["long.md"])) > 3
    within = search("zebra tag:ops", filters=["tag=dev"])
    assert [hit.path for hit in within] == [b]


def test_each_step_is_told_as_it_ends(library):
    told = []
    results = SearchServiceV2(library, on_stage=told.append).search("keys", dataset="notes")
    assert [report.name for report in told if report.name != "fuse"] == [
        report.name for report in results.stages if report.name != "fuse"
    ]
    assert {"lexical", "vector", "shape"} <= {report.name for report in told}
