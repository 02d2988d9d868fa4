"""The embedded Qdrant engine: its folder, its lock, and what it does after damage or a kill."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from catalog.core.errors import EngineBlockedError, EngineError, EngineLockedError
from catalog.store.vectors import qdrant_edge
from catalog.store.vectors.qdrant_edge import QdrantEdgeEngine
from processes import Forked
from vector_bench import DATASET, DIM, Bench, bench, everything, paths_of, vector

ALL = [f"{index:02}.md" for index in range(12)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "qdrant-edge") as made:
        for index, path in enumerate(ALL):
            made.put(path, vector(1, index))
        yield made


def answers(desk: Bench, engine: QdrantEdgeEngine) -> list[str]:
    hits = desk.search(engine, vector(1), 20, everything())
    return paths_of(desk.database, [hit.seq for hit in hits])


def in_other_process(desk: Bench, code: str) -> subprocess.Popen[str]:
    lines = [
        "import sys",
        f"sys.path[:0] = {[p for p in sys.path if p]!r}",
        "from pathlib import Path",
        "from vector_bench import *",
        f"desk = Bench(Path({str(desk.folder)!r}), 'qdrant-edge')",
        "engine = desk.engine()",
        code,
    ]
    return Forked(
        ["-c", "\n".join(lines)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_nothing_is_opened_before_the_first_search(desk: Bench):
    engine = desk.engine()
    assert not (desk.folder / "index").exists()
    engine.close()
    assert not (desk.folder / "index").exists()


def test_the_folder_is_filled_once_and_loaded_afterwards(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    engine = desk.engine()
    assert answers(desk, engine) == ALL
    monkeypatch.setattr(QdrantEdgeEngine, "_add", lambda *_: pytest.fail("points are added"))
    assert answers(desk, desk.reopen(engine)) == ALL


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "state.json").unlink(),
        lambda folder: (folder / "state.json").write_text("{"),
        lambda folder: (folder / "state.json").write_text("[]"),
        lambda folder: (folder / "shard" / "edge_config.json").write_text("nonsense"),
        lambda folder: (folder / "shard" / "edge_config.json").unlink(),
        lambda folder: [f.unlink() for f in folder.glob("shard/segments/*/segment.json")],
        lambda folder: [f.unlink() for f in folder.glob("shard/segments/**/vectors/*")],
        lambda folder: [f.unlink() for f in folder.glob("shard/**/*") if f.is_file()],
    ],
)
def test_a_damaged_folder_mends_itself(desk: Bench, damage):
    engine = desk.engine()
    engine.refresh()
    engine.close()
    damage(desk.folder / "index")
    assert answers(desk, desk.engine()) == ALL


def test_another_model_store_or_format_fills_the_folder_again(desk: Bench):
    engine = desk.engine()
    engine.refresh()
    engine.close()
    other = desk.make(desk.database, DATASET, desk.folder / "index", "model/2")
    with pytest.MonkeyPatch.context() as patched:
        made = []
        patched.setattr(QdrantEdgeEngine, "_add", lambda _, points: made.extend(points))
        other.refresh()
    assert len(made) == len(ALL)
    other.close()


@pytest.mark.slow
def test_another_process_is_told_too_and_takes_over_when_the_first_is_killed(desk: Bench):
    holder = in_other_process(desk, "engine.refresh(); print('held', flush=True); input()")
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(EngineLockedError, match="VECTOR_ENGINE=flat"):
            answers(desk, desk.engine())
        holder.send_signal(signal.SIGKILL)
    assert answers(desk, desk.engine()) == ALL


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["_remove", "_add", "_write", "_run"])
def test_a_process_killed_while_it_follows_loses_nothing(desk: Bench, moment: str):
    engine = desk.engine()
    engine.refresh()
    engine.close()
    desk.put("00.md", vector(1, 0.5), texts=["edited"])
    desk.put("new.md", vector(0, 0, 1))
    killed = in_other_process(
        desk,
        "import os, signal\n"
        "from catalog.store.vectors.qdrant_edge import QdrantEdgeEngine as E\n"
        f"original = E.{moment}\n"
        "def dies(self, *given):\n"
        "    result = original(self, *given)\n"
        "    if '\"is_whole\": false' in self._record.read_text():\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return result\n"
        f"E.{moment} = dies\n"
        "engine.refresh()",
    )
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    engine = desk.engine()
    assert sorted(answers(desk, engine)) == sorted(["00.md", *ALL[1:], "new.md"])
    assert engine.verify() == 0


@pytest.mark.slow
def test_a_process_that_forgets_to_close_leaves_a_sound_index(desk: Bench):
    code = "desk.put('x.md', vector(1)); engine.refresh()"
    careless = in_other_process(desk, code)
    assert careless.communicate()[0] == ""
    assert careless.returncode == 0
    engine = desk.engine()
    assert answers(desk, engine) == ["00.md", "x.md", *ALL[1:]]


@pytest.mark.slow
def test_a_large_index_is_quantized_and_has_no_graph(desk: Bench, monkeypatch: pytest.MonkeyPatch):
    random = np.random.default_rng(3)
    for index in range(10):
        desk.put(f"n{index}.md", *random.normal(size=(60, DIM)).astype(np.float32))
    engine = desk.engine()

    def quantized() -> int:
        return len(
            [*(desk.folder / "index/shard").glob("segments/*/vector_storage/quantized.data")]
        )

    engine.rebuild()
    assert quantized() == 0
    monkeypatch.setattr(qdrant_edge, "QUANTIZE_FROM", 200)
    engine.rebuild()
    assert quantized() == 1
    links = (desk.folder / "index/shard").glob("segments/*/vector_index/links_compressed.bin")
    assert sum(file.stat().st_size for file in links) < 600 * 8


def test_a_full_disk_is_noticed_before_anything_is_written(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    engine = desk.engine()
    engine.refresh()
    full = shutil._ntuple_diskusage(10**9, 10**9, 10**6)  # type: ignore[attr-defined]
    desk.put("new.md", vector(1))
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: full)
        patched.setattr(QdrantEdgeEngine, "_remove", lambda *_: pytest.fail("it is written"))
        with pytest.raises(EngineBlockedError, match="free some space"):
            answers(desk, engine)
    assert answers(desk, engine) == ["00.md", "new.md", *ALL[1:]]


def test_a_search_that_the_engine_always_refuses_ends(desk: Bench, monkeypatch):
    engine = desk.engine()
    answers(desk, engine)
    find, asked = QdrantEdgeEngine._find, []

    def refuse(self, vector, limit, ids):
        if limit == 1:  # the probe when the shard is opened
            return find(self, vector, limit, ids)
        asked.append(limit)
        assert len(asked) < 20, "it asks for ever"
        self.close()
        raise EngineError("no such query")

    monkeypatch.setattr(QdrantEdgeEngine, "_find", refuse)
    with pytest.raises(EngineError, match="no such query"):
        answers(desk, engine)


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, EngineBlockedError), (errno.EIO, EngineError)]
)
def test_errors_of_the_engine_are_ours(code: int, kind: type[EngineError]):
    with pytest.raises(kind) as caught, qdrant_edge._translate_errors():
        raise OSError(code, os.strerror(code))
    assert type(caught.value) is kind
