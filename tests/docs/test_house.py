"""The rules of the house that a reader relies on: names, imports, docstrings."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "catalog"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "versions" not in path.parts)
MAX_LINES = 600
NOT_A_VERB = set(
    re.findall(
        r"\w+",
        "a an the this these those that its it their our ours all any each every some no none what "
        "where whether which who whose how why when see of for from in on at by with one two",
    )
)


@cache
def trees():
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in MODULES]


def name_of(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(one) for one in MODULES}


def imports_of(path, tree):
    """Return the modules that a module imports, for its types and inside functions, too."""
    known, found = NAMES, set()
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                full = f"{statement.module}.{alias.name}"
                found.add(full if full in known else statement.module)
    return (found & known) - {name_of(path)}


def is_property(function):
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


@pytest.mark.slow
def test_no_two_public_classes_share_a_name():
    places = defaultdict(list)
    for path, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name_of(path))
    assert {name: at for name, at in places.items() if len(at) > 1} == {}


@pytest.mark.slow
def test_no_module_imports_itself_in_a_circle():
    graph = {name_of(path): imports_of(path, tree) for path, tree in trees()}
    done, open_ = set(), []

    def visit(name):
        if name in open_:
            pytest.fail(" -> ".join([*open_[open_.index(name) :], name]))
        if name in done:
            return
        open_.append(name)
        for other in sorted(graph[name]):
            visit(other)
        open_.pop()
        done.add(name)

    for name in sorted(graph):
        visit(name)


def test_no_module_is_longer_than_a_story():
    lengths = {
        str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in MODULES
    }
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


@pytest.mark.slow
def test_no_text_that_is_printed_names_a_page_which_an_installed_package_lacks():
    found = []
    for path, tree in trees():
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        silent = set() if "cli" in path.parts else docstrings  # there they are help
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and id(node) not in silent and re.search(r"\bdocs/[\w-]+/", node.value):
                found.append(f"{name_of(path)}:{node.lineno}: {node.value}")
    assert found == []


@pytest.mark.slow
def test_every_docstring_of_a_function_begins_with_a_verb():
    wrong = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_property(node):
                continue
            first = (ast.get_docstring(node) or "").split(" ")[0].strip(".,:;").casefold()
            if first in NOT_A_VERB or (first and not re.match(r"[a-z]", first)):
                wrong.append(f"{name_of(path)}.{node.name}: {first}")
    assert wrong == []


@pytest.mark.slow
def test_a_docstring_names_modules_and_parts_that_exist():
    for path, tree in trees():
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r":(?:mod|func|class|data):`~?(catalog\.[\w.]+)`", text):
            assert resolve_name(name) is not None, (path, name)
        if path.name == "__init__.py":
            listed = re.findall(r"^([a-z_]+\.py) ", ast.get_docstring(tree) or "", re.MULTILINE)
            assert [name for name in listed if not (path.parent / name).exists()] == [], path
