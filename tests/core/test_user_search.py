"""Searches of other people, named by a dotted path."""

import sys
import textwrap

import pytest

from catalog.core.errors import BackendError, StageFailedError
from catalog.core.retrieval_events import tell_failure
from catalog.core.user_search import DEPTH_NAMES, UserSearch


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module into the working directory; it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def written(name, source):
        names.update({name, name.partition(".")[0]})
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))

    names = set()
    yield written
    for name in names:
        sys.modules.pop(name, None)


def asked(function, **offered):
    """The path that the function answers with."""
    found = UserSearch("stub", function).search("key", dataset="books", top_k=3, **offered)
    return found.hits[0].path


def test_a_function_of_a_module_in_the_working_directory_is_found(module):
    module("theirs", "def find(query):\n    return [query + '.md']\n")
    answer = UserSearch("theirs:find").search("key", dataset="books", top_k=3)
    assert answer.documents == ("key.md",)


def test_a_module_alone_means_its_search_function(module):
    module("pack.theirs", "def search(query):\n    return ['searched.md']\n")
    found = UserSearch("pack.theirs").search("key", dataset="books", top_k=3)
    assert found.documents == ("searched.md",)


def test_attributes_are_followed_and_classes_made(module):
    module(
        "theirs",
        """
        class Engine:
            def __init__(self):
                self.ready = "made"
            def search(self, query):
                return [self.ready]
        class Callable:
            def __call__(self, query):
                return ["called"]
            def search(self, query):
                raise AssertionError
        class Rooms:
            engine = Engine()
        """,
    )
    for spec, path in [
        ("theirs:Engine", "made"),
        ("theirs:Callable", "called"),
        ("theirs:Rooms.engine", "made"),
        ("theirs:Rooms.engine.search", "made"),
    ]:
        assert UserSearch(spec).search("x", dataset="d", top_k=1).documents == (path,), spec


def test_a_retriever_is_a_search_by_its_method(module):
    module(
        "theirs",
        """
        class Retriever:
            def retrieve(self, str_or_query_bundle):
                return [{"metadata": {}, "ref_doc_id": str_or_query_bundle + ".md"}]
        retriever = Retriever()
        """,
    )
    found = UserSearch("theirs:retriever").search("key", dataset="books", top_k=3, filters="f")
    assert found.documents == ("key.md",)


def test_a_search_of_which_a_part_failed_has_failed():
    def search(query):
        tell_failure("vector", ConnectionError("no answer"))
        return ["a.md"]

    with pytest.raises(StageFailedError, match="stage vector failed: ConnectionError: no answer"):
        asked(search)
    tell_failure("vector", ConnectionError("no answer"))  # outside of one it is nobody's
    assert asked(lambda query: [query]) == "key"


@pytest.mark.parametrize("name", DEPTH_NAMES)
def test_the_depth_goes_by_whichever_name_the_function_knows(name):
    scope = {}
    exec(f"def search(query, {name}): return [str({name})]", scope)
    assert asked(scope["search"]) == "3"


def test_the_dataset_filters_and_depth_are_given_by_keyword_to_what_takes_them():
    def search(query, *, filters, dataset, limit):
        return [f"{query} {filters} {dataset} {limit}"]

    assert asked(search, filters=["tag=ops"]) == "key ['tag=ops'] books 3"


def test_a_function_of_the_query_alone_gets_nothing_else():
    assert asked(lambda query: [query], filters=["tag=ops"]) == "key"


def test_a_function_of_any_keywords_gets_all_that_is_offered():
    def search(query, **options):
        return [str(sorted(options.items()))]

    assert asked(search, filters="f") == "[('dataset', 'books'), ('filters', 'f'), ('top_k', 3)]"


def test_an_offer_of_nothing_leaves_the_functions_own_default():
    def search(query, filters="own"):
        return [filters]

    assert asked(search, filters=None) == "own"


def test_positional_only_parameters_are_not_given_by_keyword():
    def search(query, dataset="own", /):
        return [dataset]

    assert asked(search) == "own"


def test_a_search_that_ignores_the_depth_is_cut_to_it():
    found = UserSearch("stub", lambda query: list("abcdef"))
    assert found.search("x", dataset="d", top_k=3).documents == ("a", "b", "c")


def test_an_answer_of_no_known_shape_is_refused():
    with pytest.raises(BackendError, match="sequence of hits"):
        asked(lambda query: 42)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("no_such_module_anywhere:find", "no_such_module_anywhere"),
        ("theirs:missing", "missing"),
        ("theirs", "search"),
        ("theirs:engine.missing", "missing"),
        (":find", "package.module"),
        ("", "package.module"),
        ("./missing.run", "package.module"),
        ("../runs/missing.run:find", "package.module"),
        ("theirs:Demanding", "url"),
        ("theirs:Broken", "no server"),
        ("theirs:engine", "cannot be called"),
        ("misspelt", "SyntaxError"),
        ("failing", "no licence"),
    ],
)
def test_a_search_that_cannot_be_loaded_is_one_clear_error_whatever_went_wrong(
    module, spec, reason
):
    module(
        "theirs",
        """
        engine = 7
        class Demanding:
            def __init__(self, url): ...
        class Broken:
            def __init__(self):
                raise OSError("no server")
        """,
    )
    module("misspelt", "def search(:\n")
    module("failing", "raise RuntimeError('no licence')\n")
    with pytest.raises(BackendError) as raised:
        UserSearch(spec)
    assert reason in str(raised.value)
    assert repr(spec) in str(raised.value)


def test_what_the_search_itself_raises_is_not_hidden():
    def search(query):
        raise TimeoutError("slow")

    with pytest.raises(TimeoutError, match="slow"):
        asked(search)


def test_a_search_may_change_the_filters_it_is_given_without_harm():
    def careless(query, filters=None):
        filters.clear()
        return []

    filters = ["path~guides"]
    UserSearch("careless", careless).search("q", dataset="d", top_k=3, filters=filters)
    assert filters == ["path~guides"]


def test_an_asynchronous_search_is_refused_when_it_is_loaded(tmp_path, monkeypatch):
    (tmp_path / "later_search.py").write_text("async def search(query):\n    return []\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendError, match="asynchronous"):
        UserSearch("later_search")
