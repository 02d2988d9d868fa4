"""Labelled prompts: reading them, and counting how a chooser does."""

import json

import pytest

from catalog.core.errors import GoldenSetError
from catalog.evaluation.significance import wilson_interval
from catalog.evaluation.tool_choice import RoutingPrompt, read_prompts, routing_report


def prompt(number, tool, kind="k"):
    return RoutingPrompt(id=f"r{number}", prompt=f"question {number}", tool=tool, kind=kind)


FOUR = [prompt(1, "a", "x"), prompt(2, "a", "y"), prompt(3, "b", "y"), prompt(4, "b", "y")]


def test_a_file_is_read_in_its_order_and_blank_lines_are_passed(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n\n".join(one.model_dump_json() for one in FOUR) + "\n")
    assert read_prompts(path) == tuple(FOUR)


def test_every_bad_line_is_named(tmp_path):
    path = tmp_path / "prompts.jsonl"
    good = FOUR[0].model_dump()
    lines = [good, good, good | {"id": "r9", "extra": 1}, good | {"id": "r8", "prompt": " "}]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{not json\n")
    with pytest.raises(GoldenSetError) as error:
        read_prompts(path)
    told = str(error.value)
    assert "has 4 bad lines" in told
    assert "line 2: id 'r1' occurs in line 1" in told
    assert "line 3: extra" in told
    assert "line 4: prompt" in told
    assert "line 5: not JSON" in told


def test_a_file_without_prompts_is_an_error(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n")
    with pytest.raises(GoldenSetError, match="has no prompt"):
        read_prompts(path)


def test_right_choices_are_counted_by_tool_and_kind():
    chosen = {"question 1": "a", "question 2": "b", "question 3": "b", "question 4": "c"}
    report = routing_report(FOUR, chosen.__getitem__)
    assert (report.total, report.right, report.accuracy) == (4, 2, 0.5)
    assert report.confusion == {("a", "a"): 1, ("a", "b"): 1, ("b", "b"): 1, ("b", "c"): 1}
    assert report.kinds == {"x": (1, 1), "y": (1, 3)}
    assert [(prompt.id, tool) for prompt, tool in report.misses] == [("r2", "b"), ("r4", "c")]


def test_the_report_is_json():
    report = routing_report(FOUR, lambda text: "a")
    told = json.loads(json.dumps(report.to_dict()))
    assert told["confusion"] == [
        {"tool": "a", "chosen": "a", "prompts": 2},
        {"tool": "b", "chosen": "a", "prompts": 2},
    ]
    assert told["misses"][0]["id"] == "r3"
    assert told["kinds"]["y"] == {"right": 1, "prompts": 3}


def test_no_prompts_are_no_report():
    with pytest.raises(GoldenSetError, match="no prompts"):
        routing_report([], lambda text: "a")


def test_the_interval_is_wilsons():
    # 8 of 10, z = 2: (.8 + .2) / 1.4 = .714286; 2 * sqrt(.16/10 + 4/400) / 1.4 = .230350
    low, high = wilson_interval(8, 10, z=2.0)
    assert (low, high) == pytest.approx((0.483936, 0.944636), abs=1e-6)
    assert wilson_interval(0, 5)[0] == 0.0
    assert wilson_interval(5, 5)[1] == 1.0
    assert wilson_interval(5, 5)[0] == pytest.approx(0.565518, abs=1e-6)
