"""Searches of other people, named by a dotted path."""

import os
import subprocess
import sys
import textwrap

import pytest

from catalog.core.errors import BackendError, StageFailedError
from catalog.core.retrieval_events import tell_failure
from catalog.core.user_search import DEPTH_NAMES, UserSearch
from tables import table


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


def test_what_a_function_takes_by_keyword_is_given_to_it_and_nothing_else():
    def some(query, *, filters, dataset, limit):
        return [f"{query} {filters} {dataset} {limit}"]

    def every(query, **options):
        return [str(sorted(options.items()))]

    def own(query, dataset="own", /, filters="own"):
        return [f"{dataset} {filters}"]

    assert asked(some, filters=["tag=ops"]) == "key ['tag=ops'] books 3"
    assert asked(lambda query: [query], filters=["tag=ops"]) == "key"
    told = asked(every, filters="f")
    assert told == "[('dataset', 'books'), ('filters', 'f'), ('top_k', 3)]"
    assert asked(own, filters=None) == "own own"


def test_hits_are_cut_to_the_depth_and_errors_of_the_search_are_not_hidden():
    def slow(query):
        raise TimeoutError("slow")

    found = UserSearch("stub", lambda query: list("abcdef"))
    assert found.search("x", dataset="d", top_k=3).documents == ("a", "b", "c")
    with pytest.raises(TimeoutError, match="slow"):
        asked(slow)
    with pytest.raises(BackendError, match="sequence of hits"):
        asked(lambda query: 42)


@table("spec, reason")
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


DECOYS = ("tiktoken", "numpy", "json", "pydantic")


def run(folder, code):
    """Run code in a child process whose working directory holds decoys that say they were run."""
    for name in DECOYS:
        (folder / f"{name}.py").write_text(f"print('RAN {name}')\n")
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.mark.slow
def test_a_file_named_like_an_installed_package_is_not_run(tmp_path):
    theirs = "import numpy\nimport tiktoken\ndef find(query):\n    return [query]\n"
    (tmp_path / "theirs.py").write_text(theirs)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "theirs.py").write_text(theirs)
    code = (
        "import sys; before = list(sys.path), list(sys.meta_path)\n"
        "from catalog.core.user_search import UserSearch\n"
        "for spec in ('catalog.search:search', 'theirs:find', 'pack.theirs:find'):\n"
        "    UserSearch(spec)\n"
        "assert (sys.path, sys.meta_path) == before\n"
        "import tiktoken, numpy; print(numpy.zeros(1)[0])"
    )
    assert run(tmp_path, code) == ["0.0"]


def test_the_module_asked_for_wins_over_an_installed_one_and_finds_its_neighbours(tmp_path):
    (tmp_path / "test.py").write_text("import neighbour\ndef find(query): ...\n")
    (tmp_path / "neighbour.py").write_text("print('neighbour')\n")
    code = (
        "from catalog.core.user_search import load_object\n"
        "print(load_object('test:find', '').__name__)\n"
        "import importlib.util; print(importlib.util.find_spec('theirs'))"
    )
    assert run(tmp_path, code) == ["neighbour", "find", "None"]


@pytest.mark.parametrize("spec", ["broken:find", "absent:find"])
def test_an_import_that_fails_leaves_the_path_as_it_was(tmp_path, monkeypatch, spec):
    from catalog.core.user_search import load_object

    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("raise RuntimeError\n")
    before = list(sys.path), list(sys.meta_path)
    with pytest.raises((RuntimeError, ModuleNotFoundError)):
        load_object(spec, "")
    assert (sys.path, sys.meta_path) == before
