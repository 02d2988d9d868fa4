"""A build on a Ray cluster of two nodes: the same store, and a killed worker costs nothing.

Needs ``pip install 'catalog-search[ray]'`` and half a minute, so it is skipped where Ray is absent.
"""

import importlib.util
import os
import sys

import pytest

import lethal_work
from catalog.core.errors import ConfigError, MissingExtraError
from catalog.core.settings import IngestSettings
from catalog.ingest.executors import Lost, open_executor
from catalog.library.indexing import Indexer
from fakes import open_library, write
from ingest.test_workers import rows_of
from lethal import LethalEncoder

has_ray = importlib.util.find_spec("ray") is not None


@pytest.fixture(scope="module")
def address():
    if not has_ray:
        pytest.skip("NO RAY: the package ray is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from ray.cluster_utils import Cluster

        node = {"num_cpus": 1, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=node)
        cluster.add_node(num_cpus=1)
        yield cluster.address
        cluster.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_a_build_on_two_nodes_stores_what_one_process_does_though_a_worker_is_killed(
    address, tmp_path
):
    folder, mark = tmp_path / "folder", tmp_path / "mark"
    for number in range(12):
        write(folder, **{f"doc{number}_dot_md": f"# Topic {number}\n\nWords of topic {number}.\n"})
    write(folder, twice_dot_md="# Twice\n\nThis ends its process once, and not again.")
    on_ray = {"ingest": IngestSettings(ray=address)}
    with open_library(tmp_path / "ray", LethalEncoder(mark), **on_ray) as library:
        report = Indexer(library).build(folder, "notes")
    assert mark.exists()
    with open_library(tmp_path / "one", LethalEncoder(mark)) as library:
        one = Indexer(library).build(folder, "notes")
    assert (report.embedded, report.failed) == (one.embedded, ())
    assert rows_of(tmp_path / "ray", None) == rows_of(tmp_path / "one", None)


@pytest.mark.filterwarnings("ignore")
def test_an_item_that_ends_its_worker_each_time_is_lost_alone_and_errors_are_raised(address):
    with open_executor(IngestSettings(ray=address)) as executor:
        assert executor.size == 2
        before, lost, after = executor.map(lethal_work.work, [3, "fatal", 4])
        assert (before, after, type(lost)) == (9, 16, Lost)
        nodes = executor.map(lethal_work.node, range(12))
        assert len(set(nodes)) == 2, "only one of the nodes worked"
        with pytest.raises(ValueError, match="it is wrong"):
            list(executor.map(lethal_work.work, ["wrong"]))


@pytest.mark.filterwarnings("ignore")
def test_an_address_where_no_cluster_answers_is_reported():
    expected = ConfigError if has_ray else MissingExtraError
    with pytest.raises(expected, match=r"no Ray cluster answers|'\.\[ray\]'"):
        open_executor(IngestSettings(ray="127.0.0.1:1"))
