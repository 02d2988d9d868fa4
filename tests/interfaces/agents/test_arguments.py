"""Arguments as models write them: what is meant beyond doubt is taken, anything else refused."""

from dataclasses import KW_ONLY, dataclass, field

import pytest

from catalog.core.filters import parse_filters
from catalog.core.params import Params, about, edge_fields, optional
from catalog.interfaces.agents import AGENT_TOOLS
from catalog.interfaces.agents.tool import Argument, arguments_of


class Asked:
    """An engine that keeps what it was asked and finds nothing."""

    def __init__(self):
        self.asked = []

    def ask(self, operation, arguments):
        self.asked.append((operation, dict(arguments)))
        if operation == "browse":
            return {
                "dataset": "d",
                "datasets": ["d"],
                "entries": [],
                "total": 0,
                "types": {},
                "notes": [],
            }
        return {
            "query": arguments["query"],
            "dataset": "d",
            "datasets": ["d"],
            "mode": "hybrid",
            "results": [],
            "stages": [],
            "confidence": 0.0,
            "low_confidence": True,
            "elapsed_ms": 1.5,
            "notes": [],
        }

    def close(self):
        pass


@pytest.fixture
def asked():
    return Asked()


def call(asked, tool, /, **arguments):
    """The answer, and the first thing the engine was asked."""
    answer = AGENT_TOOLS[tool].call(asked, arguments)
    return answer, asked.asked[0][1] if asked.asked else None


def test_blank_and_null_values_count_as_not_given(asked):
    answer, given = call(
        asked,
        "search",
        query="keys",
        file_type="",
        name="  ",
        dataset=None,
        filters="",
        top_k=None,
        explain=None,
    )
    assert not answer.is_error
    assert given == {"query": "keys", "mode": "lexical", "explain": False}


@pytest.mark.parametrize("docs", [["", " "], "", " "])
def test_blank_docs_do_not_come_to_mean_every_document(asked, docs):
    answer, given = call(asked, "search", query="keys", docs=docs)
    assert answer.data["message"] == "docs is empty: leave it out to search all documents"
    assert given is None


def test_an_empty_list_of_docs_is_no_document_at_all(asked):
    answer, given = call(asked, "search", query="keys", docs=[])
    assert given["docs"] == []
    assert "docs is an empty list" in answer.data["message"]


@pytest.mark.parametrize(
    ("given", "taken", "notes"),
    [
        (5.0, 5, []),
        (50, 50, []),
        ("5", 5, []),
        (" +5.0 ", 5, []),
        ("51", 50, ["top_k 51 is out of range, so 50 was used"]),
        (51, 50, ["top_k 51 is out of range, so 50 was used"]),
        (0, 1, ["top_k 0 is out of range, so 1 was used"]),
        (-3.0, 1, ["top_k -3 is out of range, so 1 was used"]),
        pytest.param(
            10**5000, 50, ["top_k of that size is out of range, so 50 was used"], id="enormous"
        ),
        ("9" * 19, 50, ["top_k of that size is out of range, so 50 was used"]),
    ],
)
def test_whole_numbers_are_taken_and_clamped_with_a_note(asked, given, taken, notes):
    answer, told = call(asked, "search_chunks", query="keys", top_k=given)
    assert told["top_k"] == taken
    assert answer.data["notes"] == notes
    assert all(f"note: {note}\n" in f"{answer.text}\n" for note in notes)


@pytest.mark.parametrize(
    "given",
    [
        "5.5",
        "5 or so",
        "٥",
        "0x5",
        "true",
        5.5,
        float("nan"),
        float("inf"),
        [5],
        {"least": 5},
        "five",
    ],
)
def test_a_value_that_is_not_a_whole_number_is_refused(asked, given):
    answer, told = call(asked, "search_chunks", query="keys", top_k=given)
    assert answer.is_error
    assert "top_k" in answer.text
    assert told is None


@pytest.mark.parametrize(
    ("given", "taken"), [("true", True), ("False", False), ("yes", True), (1, True)]
)
def test_a_yes_or_no_may_be_text(asked, given, taken):
    answer, told = call(asked, "search", query="keys", explain=given)
    assert not answer.is_error
    assert told["explain"] is taken


@pytest.mark.parametrize("given", ["perhaps", 5])
def test_a_value_that_is_not_a_yes_or_no_is_refused(asked, given):
    answer, told = call(asked, "search", query="keys", explain=given)
    assert "explain" in answer.text
    assert told is None


def test_a_text_that_is_a_number_stays_one_where_text_is_wanted(asked):
    _, told = call(asked, "search", query="5", dataset="2024", name="7", docs="8")
    assert (told["query"], told["dataset"], told["docs"]) == ("5", "2024", ["8"])


def test_a_list_given_to_get_points_at_multi_get(asked):
    answer, told = call(asked, "get", reference=["a.md", "b.md"])
    assert "not ['a.md', 'b.md']; multi_get takes several" in answer.text
    assert told is None


@pytest.mark.parametrize("query", ["", "   ", "\n\t"])
@pytest.mark.parametrize("name", ["search_chunks", "search", "vsearch", "query"])
def test_a_blank_query_is_told_to_be_blank(asked, name, query):
    answer, told = call(asked, name, query=query)
    assert answer.data["message"] == "the argument query is blank: say what to look for"
    assert answer.is_error
    assert told is None


def test_what_is_missing_or_too_much_is_named(asked):
    answer, _ = call(asked, "get", line_strat=3)
    assert "the argument reference is missing" in answer.text
    assert "there is no argument 'line_strat'; did you mean line_start?" in answer.text


def test_another_usual_name_is_taken_with_a_note(asked):
    answer, told = call(asked, "search_chunks", q="keys", limit=3, path="a.md", fileType="md")
    assert told == {
        "query": "keys",
        "top_k": 3,
        "docs": ["a.md"],
        "file_type": "md",
    }
    assert answer.data["notes"] == [
        "q was read as query, limit was read as top_k, path was read as docs, "
        "fileType was read as file_type_filter"
    ]


def test_lists_are_read_in_every_form_that_models_write(asked):
    call(asked, "search_chunks", query=["keys"], docs='["a.md", "b.md"]', dataset="d, e")
    call(asked, "search_chunks", query="keys", filters={"tag": "ops"}, docs="[draft].md")
    (_, lists), (_, others) = (one for one in asked.asked if one[0] == "search")
    assert (lists["query"], lists["docs"]) == ("keys", ["a.md", "b.md"])
    assert lists["dataset"] == ["d", "e"]
    assert (others["filters"], others["docs"]) == ({"tag": "ops"}, ["[draft].md"])


def test_a_wrong_type_is_reported_once_in_plain_words(asked):
    answer, _ = call(asked, "search_chunks", query="keys", docs={"a": 1}, filters=3)
    assert answer.data["message"] == (
        "docs must be a valid string or a valid list, not {'a': 1}; "
        "filters must be a valid string or a valid list or a valid dictionary, not 3"
    )


def test_texts_are_one_or_a_list_or_with_commas(asked):
    call(asked, "search", query="keys", docs=["a.md", "b/*.txt"], filters="tag=ops")
    call(asked, "query_catalog", tags="ops, security")
    call(asked, "query_catalog", tags=["ops", ""])
    searched, as_one, in_parts, by_list = (
        one[1] for one in asked.asked if "limit" not in one[1] or one[1]["limit"] == 20
    )
    assert searched["docs"] == ["a.md", "b/*.txt"]
    assert searched["filters"] == ["tag=ops"]
    assert as_one["tags"] == ["ops, security"]
    assert in_parts["tags"] == ["ops", "security"]
    assert by_list["tags"] == ["ops"]


@pytest.mark.parametrize("pattern", ["", " , ", [], [" "]])
def test_a_pattern_that_names_nothing_is_refused(asked, pattern):
    answer, told = call(asked, "multi_get", patterns=pattern)
    assert answer.is_error
    assert "pattern" in answer.text
    assert told is None


def test_each_search_asks_in_its_own_way(asked):
    for name in ("search", "vsearch", "query", "search_chunks"):
        call(asked, name, query="keys")
    searches = [given for operation, given in asked.asked if operation == "search"]
    assert [given.get("mode") for given in searches] == ["lexical", "vector", "hybrid", None]
    assert [given.get("rerank") for given in searches] == [None, None, True, None]


def test_only_what_a_tool_needs_is_required():
    required = {name: tool.input_schema().get("required", []) for name, tool in AGENT_TOOLS.items()}
    assert required == {
        "search_chunks": ["query"],
        "query_catalog": [],
        "search": ["query"],
        "vsearch": ["query"],
        "query": ["query"],
        "get": ["reference"],
        "multi_get": ["patterns"],
        "status": [],
    }
    assert all(not tool.input_schema()["additionalProperties"] for tool in AGENT_TOOLS.values())


def test_every_argument_is_described():
    for tool in AGENT_TOOLS.values():
        for name, schema in tool.input_schema()["properties"].items():
            assert schema.get("description"), f"{tool.name}: {name}"


def test_what_no_document_can_hold_is_not_asked_for(asked):
    call(asked, "search", query="a\x00b", docs=["\ud800.md"])
    assert asked.asked[0][1]["query"] == "a\ufffdb"
    assert asked.asked[0][1]["docs"] == ["\ufffd.md"]


@dataclass(frozen=True)
class Verb(Params):
    """Made up."""

    words: str = field(metadata=about("Words."))
    _: KW_ONLY
    count: int = optional(5, "How many.", (2, 900))
    names: list[str] | None = optional(None, "Names.")
    again: bool | None = optional(None, "Do it again.")
    secret: int = optional(0, "Only in Python.", python_only=True)


def test_a_tool_takes_every_parameter_of_its_verb_unless_excluded():
    (properties, required) = (arguments_of(Verb).model_json_schema()[key]
                              for key in ("properties", "required"))  # fmt: skip
    assert list(properties) == [field.name for field in edge_fields(Verb)]
    assert required == ["words"]
    assert properties["count"]["description"] == "How many."


def test_a_tool_may_rename_bound_leave_out_and_move_parameters():
    model = arguments_of(
        Verb,
        without=("again",),
        last=("words",),
        names=Argument(name="who", help="Whose."),
        count=Argument(bounds=(1, 3), default=2),
    )
    assert list(model.model_fields) == ["count", "who", "words"]
    assert model.model_fields["count"].description == "How many, 1 to 3."
    assert model.model_fields["who"].description == "Whose."
    arguments, notes = model.read({"words": "a", "count": 9.0, "who": "x, y"})
    assert arguments.params() == {"words": "a", "count": 3, "names": "x, y"}
    assert notes == ("count 9 is out of range, so 3 was used",)
    assert model.read({"words": "a"})[0].params() == {"words": "a", "count": 2}


@pytest.mark.parametrize(
    "filters",
    [
        '{"tag": "ops", "page": {">=": 3}}',
        '[{"tag": "ops"}, {"page": {">=": 3}}]',
        [{"tag": "ops"}, {"page": {">=": 3}}],
        ["tag=ops", {"page": {">=": 3}}],
        ["tag=ops", '{"page": {">=": 3}}'],
        [
            {"field": "tag", "op": "=", "value": "ops"},
            {"key": "page", "operator": ">=", "value": 3},
        ],
        '[{"key": "tag", "value": "ops"}, "page>=3"]',
    ],
)
@pytest.mark.parametrize("tool", ["search_chunks", "search"])
def test_filters_may_be_json_text_or_a_list_of_objects(asked, tool, filters):
    answer, given = call(asked, tool, query="keys", filters=filters)
    assert not answer.is_error
    assert parse_filters(given["filters"]) == parse_filters(["tag=ops", "page>=3"])


def test_text_that_only_looks_like_json_is_an_expression():
    assert parse_filters("[a=b") == parse_filters({"[a": "b"})
    assert parse_filters({"key": "a", "value": "b", "other": "c"}) == parse_filters(
        ["key=a", "value=b", "other=c"]
    )
