"""Embedding on a Ray cluster of two nodes: the same store, and a killed worker costs nothing.

Needs ``pip install 'catalog-search[ray]'`` and half a minute, so it is skipped where Ray is absent.
"""

import importlib.util
import os
import signal
import sys
import time
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import select

from catalog.core.errors import ConfigError, EmbeddingServerError, MissingExtraError
from catalog.core.settings import IngestSettings
from catalog.ingest.embedding import ask
from catalog.ingest.ray_map import open_map
from catalog.library.indexing import Indexer
from catalog.store.schema import chunk_windows, chunks, documents, embeddings, manifest
from fakes import WordEncoder, open_library, write

has_ray = importlib.util.find_spec("ray") is not None


class LethalEncoder(WordEncoder):
    """Ends the first process that embeds the word ``once``, and leaves ``mark`` behind."""

    def __init__(self, mark):
        super().__init__()
        self.mark = mark

    def encode(self, texts):
        if any("once" in text for text in texts) and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(texts)


def work(item):
    """Return the square of a number, or do what the word says."""
    match item:
        case "fatal":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wrong":
            raise ValueError("it is wrong")
    return item * item


def node(_):
    """Return on which node of the cluster this runs."""
    import ray

    time.sleep(0.3)  # so that no node does it all
    return str(ray.get_runtime_context().get_node_id())


def rows_of(home):
    """Return all that is stored, but when that was, and checksums of rows with that in them."""
    clocks = {"indexed_at", "seen_at", "created_at", "checksum"}
    with open_library(home) as library, library.database.read() as connection:
        return {
            table.name: sorted(
                repr([row[column] for column in table.c if column.name not in clocks])
                for row in connection.execute(select(table)).mappings()
            )
            for table in (documents, chunks, chunk_windows, manifest, embeddings)
        }


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
    assert rows_of(tmp_path / "ray") == rows_of(tmp_path / "one")


@pytest.mark.filterwarnings("ignore")
def test_a_batch_that_ends_its_worker_each_time_is_an_outage_and_errors_are_raised(address):
    with open_map(IngestSettings(ray=address)) as spread:
        before, (lost, _, _), after = spread(work, [3, "fatal", 4])
        assert (before, after, type(lost)) == (9, 16, EmbeddingServerError)
        assert len(set(spread(node, range(12)))) == 2, "only one of the nodes worked"
        with pytest.raises(ValueError, match="it is wrong"):
            list(spread(work, ["wrong"]))
        with pytest.raises(ConfigError, match="leave --ray out"):
            list(spread(lambda item: item, [1]))


@pytest.mark.filterwarnings("ignore")
def test_an_address_where_no_cluster_answers_is_reported():
    expected = ConfigError if has_ray else MissingExtraError
    with (
        pytest.raises(expected, match=r"no Ray cluster answers|'\.\[ray\]'"),
        open_map(IngestSettings(ray="127.0.0.1:1")),
    ):
        pass


def test_without_ray_the_map_is_the_builtin():
    with open_map(IngestSettings()) as spread:
        assert spread is map


def test_a_worker_with_another_model_is_refused(tmp_path):
    with open_library(tmp_path / "home") as library:
        model = library.model
    there = partial(ask, replace(model), "another fingerprint")
    with pytest.raises(ConfigError, match="install the same model"):
        there(["walrus"])
