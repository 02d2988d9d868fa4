"""A role sees the documents of its levels, and nothing tells it that there are others."""

import pytest

from answers.conftest import asking, serve
from catalog.answers.answering import answer_question
from catalog.core.errors import (
    DocumentNotFoundError,
    InputError,
    UnknownFieldError,
    UnknownValueError,
)
from catalog.core.params import SearchParams
from catalog.library.indexing import Indexer
from catalog.store.document_names import read_levels
from fakes import open_library, write

SALARY = "What is the salary of a director?"


def seen(service, role, **params):
    found = service.run(SearchParams("salary keys cancel bread", role=role, **params))
    return {result.path for result in found}


@pytest.mark.parametrize(
    ("role", "paths"),
    [
        (None, {"cancel.md", "keys.md", "salaries.md", "bread.txt"}),
        ("guest", {"cancel.md"}),
        ("employee", {"cancel.md", "keys.md", "bread.txt"}),
        ("lead", {"cancel.md", "keys.md", "salaries.md"}),
    ],
)
def test_a_role_sees_documents_all_of_whose_levels_it_may_see(service, role, paths):
    assert seen(service, role) == paths


def test_a_role_is_part_of_scope_of_an_answer(service):
    assert "9000" in answer_question(service, asking(SALARY, role="lead")).text
    answer = answer_question(service, asking(SALARY, role="employee"))
    assert answer.abstained
    said = str(answer.to_dict())
    assert "salaries.md" not in said
    assert "9000" not in said


def test_an_unknown_role_is_refused_with_those_there_are(service):
    with pytest.raises(InputError, match="'boss'"):
        service.run(SearchParams("keys", role="boss"))


@pytest.mark.parametrize(
    ("hidden", "absent"),
    [
        ({"docs": ["salaries.md"]}, {"docs": ["salaries.mx"]}),
        ({"docs": ["sal*.md"]}, {"docs": ["sax*.md"]}),
        ({"filters": ["tag=payroll"]}, {"filters": ["tag=payrolx"]}),
        ({"filters": ["colour=red"]}, {"filters": ["colouz=red"]}),
        ({"filters": ["confidentiality=2"]}, {"filters": ["confidentiality=3"]}),
    ],
)
def test_what_a_role_may_not_see_is_refused_as_what_is_not_there(service, hidden, absent):
    messages = []
    for params in (hidden, absent):
        with pytest.raises((DocumentNotFoundError, UnknownValueError, UnknownFieldError)) as caught:
            service.run(SearchParams("salary", role="employee", **params))
        messages.append(str(caught.value))
    (first, hint), (second, _) = (
        one.split(";", 1) if ";" in one else (one, "") for one in messages
    )
    names = [str(next(iter(given.values()))[0]) for given in (hidden, absent)]
    for part, its in zip(names[0].split("="), names[1].split("="), strict=True):
        first = first.replace(part, its)
    assert first == second
    assert "salaries" not in hint


@pytest.fixture
def plans(tmp_path):
    """Seven documents named alike that only some may see, and one that everybody may."""
    folder = tmp_path / "plans"
    hidden = "---\nconfidentiality: secret\ntitle: Roadmap\n---\nThe plan.\n"
    for n in range(7):
        write(folder, **{f"plan{n}_dot_md": hidden})
    write(folder, planet_dot_md="The planet.\n", road_dot_md="---\ntitle: plan3.md\n---\nA road.\n")
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(folder, "plans")
    opened = serve(tmp_path / "home")
    yield opened
    opened.close()


@pytest.mark.parametrize("narrowed", [{"role": "employee"}, {"doc_ids": ["planet.md", "road.md"]}])
def test_near_misses_are_looked_for_among_the_documents_that_may_answer(plans, narrowed):
    with pytest.raises(DocumentNotFoundError) as caught:
        plans.run(SearchParams("plan", docs=["plan8.md"], **narrowed))
    assert caught.value.suggestions[0] == "plans:planet.md"


def test_a_hidden_document_takes_no_name_from_one_that_is_seen(plans):
    found = plans.run(SearchParams("road", docs=["plan3.md"], role="employee"))
    assert [result.path for result in found] == ["road.md"]


def test_counts_and_notes_are_of_what_a_role_sees(service):
    found = service.run(SearchParams("salary", role="guest", name="salaries"))
    assert not found.results
    assert "salaries.md" not in str(found.to_dict())


def test_levels_that_are_large_numbers_stay_apart(tmp_path):
    levels = {"a.md": 1_000_001, "b.md": 1_000_002}
    for name, level in levels.items():
        (tmp_path / name).write_text(f"---\nconfidentiality: {level}\n---\nA walrus.\n")
    with open_library(tmp_path / "home") as library:
        Indexer(library).build(tmp_path, "d")
        with library.database.read() as connection:
            stated = read_levels(connection, ["d"])
    assert stated == {f"d:{name}": frozenset({str(level)}) for name, level in levels.items()}
