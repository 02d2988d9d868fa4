"""Several datasets are searched as though they were one, and those not named stay out."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.schema import QueryBundle

from catalog.core.errors import DocumentNotFoundError, InputError, UnknownDatasetError
from catalog.core.params import MODES
from catalog.library.get import find_document, resolve_documents
from catalog.library.indexing import Indexer
from catalog.search_v2.retrievers import CatalogRetriever, HybridRetrieverFactoryV2
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library
from small_documents import NOTES
from stores import open_store, service_of
from tables import read_cases, table

WORDS = ("key", "rotate", "admin", "bread", "flour", "yeast", "backup", "midnight")


def write(folder, texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


THREE = NOTES | {  # all tell of keys, and two datasets have a keys.md
    "manuals/keys.md": "---\ntags: [ops]\nteam: red\n---\n# Keyboards\n\nA key is cleaned.\n",
    "manuals/pump.md": "# Pump\n\nTurn the key of the pump to the left.\n",
    "secrets/vault.md": "# Vault\n\nThe key lies under the mat.\n",
}


@pytest.fixture(scope="module")
def shared(store_kind, tmp_path_factory):
    with open_store(THREE, tmp_path_factory.mktemp("shared")) as library:
        yield library


@pytest.fixture
def service(shared):
    """A service on a store that no test changes."""
    return SearchServiceV2(shared)


@pytest.fixture
def own_service(tmp_path):
    with open_store(THREE, tmp_path) as library:
        yield SearchServiceV2(library)


def ids(results):
    return [hit.source_doc_id for hit in results]


def told(results):
    found = sorted((hit.path, hit.text, hit.score) for hit in results)
    return [(path, text, pytest.approx(score, abs=1e-5)) for path, text, score in found]


@pytest.mark.slow
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), min_size=2, max_size=8
    ),
    data=st.data(),
)
def test_two_datasets_answer_as_one_that_holds_both(texts, data):
    """By scores, texts and paths; the order of equal scores goes by ids, which differ."""
    named = {f"n{n}.txt": " ".join((*words, f"w{n}")) for n, words in enumerate(texts)}
    cut = data.draw(st.integers(1, len(named) - 1))
    query = " ".join(data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        first, second = dict(list(named.items())[:cut]), dict(list(named.items())[cut:])
        with open_library(root / "home") as library:
            for name, part in (("a", first), ("b", second), ("both", named)):
                Indexer(library).build(write(root / name, part), name)
            service = SearchServiceV2(library)
            for mode in MODES:
                asked = {"mode": mode, "top_k": 20}
                of_both = service.search(query, dataset="both", **asked)
                assert told(service.search(query, dataset=["b", "a"], **asked)) == told(of_both)
                alone = service.search(query, dataset="a", **asked)
                assert told(service.search(query, dataset=["a"], **asked)) == told(alone)


@pytest.mark.both_stores
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("engine", ["bm25", "fts"])
def test_a_dataset_that_is_not_named_never_answers(service, mode, engine):
    asked = service.with_settings({"lexical_engine": engine})
    found = asked.search("the key", dataset=["notes", "manuals"], mode=mode, top_k=50)
    assert {hit.dataset for hit in found} == {"notes", "manuals"} == set(found.datasets)
    assert found.dataset is None
    within = ["secrets:vault.md", "vault.md", "keys.md"]
    scoped = asked.search("the key", dataset=["notes", "manuals"], mode=mode, doc_ids=within)
    assert set(ids(scoped)) == {"notes:keys.md", "manuals:keys.md"}
    assert len(asked.search("key", dataset=["notes", "manuals"], mode=mode, doc_ids=[])) == 0


def test_all_datasets_are_searched_if_no_dataset_is_named(service):
    found = service.search("key", top_k=50)
    assert found.datasets == ("manuals", "notes", "secrets")
    assert {hit.dataset for hit in found} == {"manuals", "notes", "secrets"}
    assert found.to_dict()["dataset"] is None
    assert service.search("key", dataset=("notes",)).to_dict()["dataset"] == "notes"


def test_an_empty_list_of_datasets_is_refused_and_so_is_an_unknown_name(service):
    with pytest.raises(InputError, match="empty list"):
        service.search("key", dataset=[])
    with pytest.raises(UnknownDatasetError, match="'nope'"):
        service.search("key", dataset=["notes", "nope"])
    with pytest.raises(InputError, match="dataset must be"):
        service.search("key", dataset=7)
    with pytest.raises(InputError, match="v1"):
        service.search("key", compare_with_v1=True)


@pytest.mark.both_stores
@pytest.mark.parametrize("mode", MODES)
def test_an_id_names_one_document_and_a_path_those_of_each_dataset(service, mode):
    both = ["notes", "manuals"]
    found = service.search("key", dataset=both, docs=["manuals:keys.md"], mode=mode)
    assert set(ids(found)) == {"manuals:keys.md"}
    found = service.search("key", dataset=both, docs=["keys.md"], mode=mode)
    assert set(ids(found)) == {"manuals:keys.md", "notes:keys.md"}
    with pytest.raises(DocumentNotFoundError, match="'manuals' or 'notes'"):
        service.search("key", dataset=both, docs=["vault.md"])


@pytest.mark.parametrize("name", ["vault.md", "vault", "secrets:vault.md", "*vault*"])
def test_what_may_have_been_meant_is_of_the_datasets_named(service, name):
    database = service.library.database
    for dataset in ("notes", ("notes", "manuals")):
        with pytest.raises(DocumentNotFoundError) as found:
            find_document(database, name, dataset=dataset)
        with pytest.raises(DocumentNotFoundError) as resolved:
            resolve_documents(database, dataset, [name])
        for raised in (found, resolved):
            assert "secrets" not in str(raised.value).replace(repr(name), "")
    with pytest.raises(DocumentNotFoundError, match=r"secrets:vault\.md"):
        find_document(database, "valt.md")


@pytest.mark.both_stores
@pytest.mark.parametrize("mode", MODES)
def test_a_field_that_one_of_the_datasets_has_may_be_filtered_by(service, mode):
    found = service.search("key", filters="team=red", mode=mode)
    assert set(ids(found)) == {"manuals:keys.md"}
    found = service.search("key", filters={"path": "keys.md"}, mode=mode, top_k=50)
    assert set(ids(found)) == {"manuals:keys.md", "notes:keys.md"}
    found = service.search("key", filters={"dataset": "secrets"}, mode=mode)
    assert set(ids(found)) == {"secrets:vault.md"}


def test_recordings_of_equal_names_in_two_datasets_stay_two():
    vtt = "WEBVTT\n\n00:00:01.000 --> 00:00:04.000\nTurn the {} key now.\n"
    words = {"a": "left", "b": "right"}
    files = {f"{name}/talk.vtt": vtt.format(word) for name, word in words.items()}
    service = service_of(files | {f"{name}/talk.mp4": "" for name in words})
    found = service.search("turn the key")
    assert set(ids(found)) == {"a:talk.vtt", "b:talk.vtt"}
    for hit in found:
        said = [line.text for line in hit.evidence.lines]
        assert said == [f"Turn the {words[hit.dataset]} key now."]
        assert hit.evidence.dataset == hit.dataset
    found = service.search("turn the key", filters={"path": "talk.mp4"})
    assert set(ids(found)) == {"a:talk.vtt", "b:talk.vtt"}


@pytest.mark.both_stores
def test_a_change_in_one_dataset_is_found_at_once(own_service, tmp_path):
    assert len(own_service.search("zebra", mode="lexical")) == 0
    (tmp_path / "manuals" / "zebra.md").write_text("A zebra in the manual.\n")
    Indexer(own_service.library).update("manuals")
    assert ids(own_service.search("zebra", mode="lexical")) == ["manuals:zebra.md"]
    assert ids(own_service.search("zebra", dataset=["manuals", "notes"])[:1]) == [
        "manuals:zebra.md"
    ]


def test_a_retriever_takes_one_dataset_several_or_none(service):
    def datasets(nodes):
        return {node.node.metadata["source_doc_id"].partition(":")[0] for node in nodes}

    query = QueryBundle("key")
    several = CatalogRetriever(["notes", "secrets"], service=service, top_k=20)
    assert datasets(several.retrieve(query)) == {"notes", "secrets"}
    assert datasets(asyncio.run(several.aretrieve(query))) == {"notes", "secrets"}
    everything = HybridRetrieverFactoryV2(service.parts).build()
    assert datasets(everything.retrieve(query)) == {"notes", "manuals", "secrets"}


def test_documents_are_chosen_first_over_several_datasets(service):
    routed = service.with_settings({"router_enabled": True, "router_documents": 2})
    found = routed.search("key pump vault", dataset=["manuals", "secrets"], top_k=1)
    assert {hit.dataset for hit in found} <= {"manuals", "secrets"}
    assert "2 documents chosen" in next(one.note for one in found.stages if one.name == "route")


def test_each_node_names_its_dataset(service):
    nodes = CatalogRetriever(service=service).retrieve("the key")
    told = {(node.metadata["dataset"], node.metadata["source_doc_id"]) for node in nodes}
    assert {dataset for dataset, _ in told} == {"notes", "manuals", "secrets"}
    assert all(source_doc_id.startswith(f"{dataset}:") for dataset, source_doc_id in told)


# Misspelt words


BUILDING = dict(read_cases(__file__)["building"])


@pytest.fixture
def building():
    return service_of(BUILDING)


def corrections(results):
    return [note.split("'")[1] for note in results.notes if note.startswith("did you mean")]


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
@table("query, meant, first")
def test_a_word_is_corrected_to_the_nearest_of_all_datasets(building, query, meant, first, mode):
    found = building.search(query, mode=mode)
    assert corrections(found) == meant.split()
    assert found[0].source_doc_id == f"mine:{first}"
    assert not any(hit.certainty != "possible" for hit in found if hit.dataset == "code")


def test_a_name_that_only_begins_like_a_word_is_no_correction(building):
    assert corrections(building.search("condesation", dataset="code", mode="lexical")) == []
    assert corrections(building.search("clustr", dataset="code", mode="lexical")) == ["Cluster"]


def test_a_corrected_word_does_not_make_a_hit_without_the_others_likely(building):
    found = building.search("githubb zebra quartz violin", dataset="mine", mode="lexical")
    assert corrections(found) == ["GitHub"]
    assert [(hit.path, hit.certainty) for hit in found] == [("staff.md", "possible")]
