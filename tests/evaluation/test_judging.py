"""Preferences and grades of people: the sequential test, agreement, and the file they are in."""

import json
import math
import multiprocessing

import numpy as np
import pytest

from catalog.core.errors import GoldenSetError
from catalog.evaluation.golden import Expected, GoldenQuery, GoldenSet, Judgement, Preference
from catalog.evaluation.golden_files import changing_golden, read_golden, save_golden
from catalog.evaluation.judging import (
    add_judgement,
    add_preference,
    cohen_kappa,
    credit_teams,
    find_conflicts,
    measure_agreement,
    preference_tests,
    team_draft,
)
from catalog.evaluation.significance import sequential_test
from tables import table

SIMULATED = 1500


def simulate(share, length, seed=7):
    """Outcome of each simulated test: after how many choices it decided, and its interval."""
    generator = np.random.default_rng(seed)
    wins = (generator.random((SIMULATED, length)) < share).cumsum(axis=1)
    number = np.arange(1, length + 1)
    beta = np.array([math.lgamma(one) for one in range(1, 2 * length + 10)])  # log (n - 1)!
    evidence = (
        beta[1 + wins] + beta[1 + number - wins] - beta[3 + number]  # log B(2 + w, 2 + l)
        - (beta[1] + beta[1] - beta[3]) + number * math.log(2)
    )  # fmt: skip
    crossed = evidence >= math.log(20)
    return np.where(crossed.any(axis=1), crossed.argmax(axis=1) + 1, 0), wins


def test_one_look_after_every_choice_makes_at_most_5_percent_false_alarms():
    decided, _ = simulate(0.5, 1000)
    assert 0.01 < np.mean(decided > 0) <= 0.05  # a test that never decides would be none, either


def test_a_preference_of_70_percent_is_decided_after_about_45_choices():
    decided, _ = simulate(0.7, 400)
    assert (decided > 0).all()
    assert 35 <= np.median(decided) <= 55
    assert np.quantile(decided, 0.9) <= 110


def test_the_test_decides_where_the_simulation_does():
    decided, wins = simulate(0.7, 120, seed=3)
    for row in range(8):
        steps = np.diff(np.concatenate([[0], wins[row]]))
        result = sequential_test([1 if won else -1 for won in steps])
        assert result.decided_after == (decided[row] or None)


@pytest.mark.slow
def test_the_interval_misses_the_true_share_at_any_time_in_at_most_5_percent():
    generator = np.random.default_rng(11)
    missed = 0
    for _ in range(200):
        choices = np.where(generator.random(40) < 0.7, 1, -1)
        interval = sequential_test(choices.tolist()).interval  # of all looks so far
        missed += not interval.low <= 0.7 <= interval.high
    assert missed <= 0.05 * 200


def test_the_evidence_is_what_a_hand_computes():
    # B(2 + 3, 2 + 0) / B(2, 2) / .5^3 = (4! 1! / 6!) / (1! 1! / 3!) * 8 = (24/720) * 6 * 8 = 1.6
    result = sequential_test([1, 0, 1, 1])
    assert result.e_value == pytest.approx(1.6)
    assert (result.wins, result.ties, result.losses, result.share) == (3, 1, 0, 1.0)
    assert result.interval.high == 1.0
    assert result.decided_after is None


def test_ties_are_no_evidence_but_count_as_questions():
    plain, tied = sequential_test([1] * 12), sequential_test([0, 1] * 12)
    assert plain.decided_after is not None
    assert tied.decided_after == 2 * plain.decided_after
    assert tied.e_value == plain.e_value
    empty = sequential_test([])
    assert (empty.share, empty.e_value, empty.decided_after) == (0.5, 1.0, None)
    assert (empty.interval.low, empty.interval.high) == (0.0, 1.0)


def query(name="q1", **fields):
    return GoldenQuery(id=name, query=f"what is {name}?", **fields)


def choice(preferred, left="v1", right="v2", by="ann", minute=0, mode="blind"):
    at = f"2026-03-01T12:{minute:02}:00Z"
    return Preference(left=left, right=right, preferred=preferred, mode=mode, by=by, at=at)


def grade(path, value, by="ann", **fields):
    return Judgement(path=path, grade=value, by=by, at="2026-03-01T12:00:00Z", **fields)


def test_a_question_counts_once_for_the_backend_and_not_for_the_side():
    queries = [
        query("a", preferences=(choice("right"), choice("left", by="bob", minute=9))),
        query("b", preferences=(choice("left", left="v2", right="v1", minute=1),)),
        query("c", preferences=(choice("neither", minute=2), choice("left", mode="open"))),
        query("d", preferences=(choice("left", minute=3, by="bob"),)),
        query("e"),
    ]
    blind, open_ = preference_tests(queries)
    assert (blind.baseline, blind.candidate, blind.mode) == ("v1", "v2", "blind")
    assert (blind.test.wins, blind.test.ties, blind.test.losses) == (2, 1, 1)
    assert (blind.neither, blind.people) == (1, {"ann": 3, "bob": 1})
    assert blind.verdict == "not decided between v2 and v1"
    assert (open_.mode, open_.test.losses) == ("open", 1)


def test_choices_are_tested_in_the_order_of_time_and_the_winner_is_named():
    queries = [query(f"q{n}", preferences=(choice("left", minute=n),)) for n in range(20)]
    first, last = preference_tests(queries), preference_tests(queries[::-1])
    assert first == last
    assert first[0].verdict == "v1 is preferred to v2, decided after 9"


def test_a_person_may_correct_a_choice_but_not_its_place_in_the_order():
    changed = add_preference(query(preferences=(choice("left"),)), choice("right", minute=9))
    changed = add_preference(changed, choice("left", by="bob", minute=10))
    changed = add_preference(changed, choice("equal", left="v2", right="v1", minute=11))
    assert [(one.by, one.preferred, one.at[14:16]) for one in changed.preferences] == [
        ("bob", "left", "10"),
        ("ann", "equal", "00"),
    ]


def test_the_first_persons_grade_counts_until_a_conflict_is_settled():
    one = add_judgement(query(), grade("a.md", 2, span={"text": "words"}))
    one = add_judgement(one, grade("a.md", 0, by="bob"))
    assert (one.grades, one.expected[0].span.text) == ({"a.md": 2}, "words")
    (conflict,) = find_conflicts([one])
    assert conflict.grades == {"ann": 2, "bob": 0}
    settled = add_judgement(one, grade("a.md", 1, by="bob", settled=True))
    assert settled.grades == {"a.md": 1}
    assert list(find_conflicts([settled])) == []
    agreed = add_judgement(one, grade("a.md", 2, by="bob"))
    assert list(find_conflicts([agreed])) == []
    assert len(agreed.judgements) == 2


def test_a_query_follows_its_labels():
    kept = query(kind="semantic", expected=(Expected(path="a.md", grade=1),))
    emptied = add_judgement(kept, grade("a.md", 0))
    assert (emptied.kind, emptied.is_answerable) == ("unanswerable", False)
    assert add_judgement(emptied, grade("b.md", 3)).kind is None
    with pytest.raises(GoldenSetError, match="answerable"):
        add_judgement(query(answerable=False), grade("a.md", 1))


def test_who_judged_does_not_change_the_digest_of_the_labels():
    plain = query(expected=(Expected(path="a.md", grade=2),))
    judged = add_preference(add_judgement(plain, grade("a.md", 2)), choice("left"))
    assert GoldenSet("s", (judged,)).digest == GoldenSet("s", (plain,)).digest
    other = add_judgement(plain, grade("a.md", 3))
    assert GoldenSet("s", (other,)).digest != GoldenSet("s", (plain,)).digest


def test_kappa_is_what_cohen_computes():
    # 20 + 15 of 50 agree (.7); by chance 25/50 * 30/50 + 25/50 * 20/50 = .5: kappa .4
    pairs = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    assert cohen_kappa(pairs) == pytest.approx(0.4)
    assert cohen_kappa([(1, 2), (2, 1)]) == -1
    assert cohen_kappa([]) is None
    assert cohen_kappa([(3, 3)] * 4) is None
    queries = [
        query("a", judgements=(grade("x", 1), grade("y", 0), grade("x", 1, by="bob"))),
        query("b", judgements=(grade("x", 2), grade("x", 0, by="bob"))),
    ]
    (found,) = measure_agreement(queries)
    assert (found.people, found.about, found.common) == (("ann", "bob"), "grades", 2)


@table("wrong")
def test_a_wrong_preference_is_refused_in_the_file(tmp_path, wrong):
    row = {"id": "a", "query": "q", "preferences": [choice("left").model_dump() | wrong]}
    (tmp_path / "set.jsonl").write_text(json.dumps(row))
    with pytest.raises(GoldenSetError, match=rf"line 1: .*preferences.0.{next(iter(wrong))}"):
        read_golden(tmp_path / "set.jsonl")


def test_judgements_survive_the_file_and_are_absent_from_one_without(tmp_path):
    file = tmp_path / "set.jsonl"
    judged = add_preference(add_judgement(query(), grade("a.md", 2)), choice("left"))
    save_golden(file, [judged, query("b")])
    assert read_golden(file).queries == (judged, query("b"))
    assert "judgements" not in file.read_text().splitlines()[1]


def _add(file, start, count):
    for number in range(start, start + count):
        with changing_golden(file) as queries:
            queries.append(query(f"q{number}"))


@pytest.mark.slow
def test_two_processes_add_to_one_file_at_once_and_lose_nothing(tmp_path):
    file = tmp_path / "set.jsonl"
    context = multiprocessing.get_context("fork")
    adding = [context.Process(target=_add, args=(file, start, 25)) for start in (0, 100)]
    for process in adding:
        process.start()
    for process in adding:
        process.join(60)
    assert [process.exitcode for process in adding] == [0, 0]
    assert len(read_golden(file)) == 50


def test_an_error_in_the_block_leaves_the_file_as_it_was(tmp_path):
    file = tmp_path / "set.jsonl"
    save_golden(file, [query()])
    before = file.read_bytes()

    def fail():
        with changing_golden(file) as queries:
            queries.clear()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert file.read_bytes() == before


def test_a_second_persons_choices_tell_the_agreement_and_are_no_new_evidence(tmp_path, command):
    both = (choice("left", minute=1), choice("left", minute=2, by="bob"))
    apart = (choice("left", minute=1), choice("right", minute=2, by="bob"))
    swapped = choice("right", minute=2, by="bob").model_copy(update={"left": "v2", "right": "v1"})
    asked = [
        query("a", preferences=both, kind="unanswerable"),
        query("b", preferences=apart),
        query("c", preferences=(choice("left", minute=1), swapped)),
        query("d", preferences=(choice("equal", minute=3, by="bob"),), kind="unanswerable"),
    ]
    (test,) = preference_tests(asked)
    assert (test.test.wins, test.test.losses, test.test.ties) == (0, 3, 1)
    assert (test.people, test.repeated) == ({"ann": 3, "bob": 1}, {"bob": 3})
    assert test.by_kind == {"unanswerable": "0-1-1"}
    (agreement,) = measure_agreement(asked)
    assert (agreement.about, agreement.common) == ("preferences", 3)
    assert agreement.share == pytest.approx(2 / 3)
    save_golden(tmp_path / "set.jsonl", asked)
    out = command("judge", "stats", tmp_path / "set.jsonl")[1]
    assert "judged before by somebody else, so not counted again: bob (3)" in out
    assert "ann and bob agree on 67% of 3 choices" in out


def test_the_number_of_choices_still_needed_is_guessed_from_those_made():
    def said(lost, won):
        asked = [query(f"l{n}", preferences=(choice("left", minute=n),)) for n in range(lost)]
        asked += [query(f"w{n}", preferences=(choice("right", minute=n),)) for n in range(won)]
        return preference_tests(asked)[0].still_needed

    assert said(12, 0) == ""  # decided
    assert said(5, 5) == ""  # no end is in sight
    more = int(said(20, 9).split()[1])
    spread = [(20 * (at + 1)) // 29 - (20 * at) // 29 for at in range(29 + more + 9)]
    decided = sequential_test([1 if won else -1 for won in spread]).decided_after
    assert decided is not None
    assert abs(decided - 29 - more) < 9


def test_stats_are_printed_and_given_as_json(tmp_path, command):
    file = tmp_path / "set.jsonl"
    asked = [query(f"q{n}", preferences=(choice("left", minute=n),)) for n in range(12)]
    disputed = add_judgement(query("z"), grade("a.md", 2))
    save_golden(file, [*asked, add_judgement(disputed, grade("a.md", 0, by="bob"))])
    code, out, _ = command("judge", "stats", file)
    assert code == 0
    assert "v2 and v1, blind: v1 is preferred to v2, decided after 9" in out
    assert "v2 won 0, tied 0 (0 both bad) and lost 12; 1 of 13 questions are left" in out
    assert "ann and bob agree on 0% of 1 document (kappa 0.00)" in out
    assert "conflict: z a.md: ann 2, bob 0" in out
    _, out, _ = command("judge", "stats", file, "--json")
    told = json.loads(out)
    assert told["preferences"][0]["test"]["losses"] == 12
    assert told["preferences"][0]["test"]["decided_after"] == 9


def test_teams_draft_in_turn_and_never_a_document_twice():
    tosses = iter([True, False, True, True])
    drafted = team_draft(["a", "b", "c", "x"], ["b", "a", "d"], lambda: next(tosses))
    assert drafted == [
        ("a", "left"), ("b", "right"),  # left begins
        ("d", "right"), ("c", "left"),  # right begins: b and a are gone
        ("x", "left"),
    ]  # fmt: skip
    assert team_draft([], [], lambda: True) == []
    assert team_draft([], ["a"], lambda: True) == [("a", "right")]


def test_each_side_of_a_draft_of_equal_lists_is_credited_alike():
    generator = np.random.default_rng(5)
    names = [str(n) for n in range(10)]
    drafts = [team_draft(names, names, lambda: generator.random() < 0.5) for _ in range(400)]
    chosen = [credit_teams([side for _, side in draft], [0]) for draft in drafts]
    assert 160 < chosen.count("left") < 240


def test_the_side_with_more_useful_documents_is_preferred():
    teams = ("left", "right", "right")
    assert credit_teams(teams, [0, 1, 2]) == "right"
    assert credit_teams(teams, [0, 1]) == "equal"
    assert credit_teams(teams, []) == "neither"
    assert credit_teams(teams, [0, 0, 9]) == "left"
