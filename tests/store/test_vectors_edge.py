"""The embedded Qdrant engine: its folder, its lock, and what it does after damage or a kill."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import func, insert, select, update

from builders import drop
from catalog.core.errors import (
    EmbeddingMismatchError,
    EngineBlockedError,
    EngineError,
    EngineLockedError,
)
from catalog.core.ids import point_id
from catalog.store.checksums import vector_checksum
from catalog.store.schema import embeddings, meta, outbox
from catalog.store.vectors import edge as edge_index_module
from catalog.store.vectors import folder_engine
from catalog.store.vectors.edge import EdgeEngine
from catalog.store.vectors.outbox import Outbox
from processes import Forked
from vector_bench import DATASET, DIM, FINGERPRINT, Bench, bench, everything, paths_of, vector


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, "qdrant-edge") as made:
        for index in range(12):
            made.put(f"{index:02}.md", vector(1, index), metadata={"tags": ("t",)})
        yield made


def engine_of(desk: Bench, fingerprint: str = FINGERPRINT, quantize_from: int = 100) -> EdgeEngine:
    folder = desk.folder / "index"
    made = EdgeEngine(desk.database, DATASET, folder, DIM, fingerprint, quantize_from=quantize_from)
    desk.opened.append(made)
    return made


def answers(desk: Bench, engine: EdgeEngine) -> list[str]:
    hits = engine.search(vector(1), 20, everything())
    return paths_of(desk.database, [hit.seq for hit in hits])


ALL = [f"{index:02}.md" for index in range(12)]


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One item per time an index was filled from the truth."""
    counted: list[str] = []
    original = Outbox.fill

    def fill(*given):
        counted.append("built")
        return original(*given)

    monkeypatch.setattr(Outbox, "fill", fill)
    return counted


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
    engine = engine_of(desk)
    assert not (desk.folder / "index").exists()
    engine.close()
    assert not (desk.folder / "index").exists()


def test_the_folder_is_built_once_and_loaded_afterwards(desk: Bench, builds: list[str]):
    for _ in range(3):
        engine = engine_of(desk)
        assert answers(desk, engine) == ALL
        engine.close()
    assert builds == ["built"]


def test_building_empties_the_outbox_of_what_it_covered(desk: Bench):
    engine_of(desk).search(vector(1), 1, everything())
    with desk.database.read() as connection:
        assert connection.scalar(select(func.count()).select_from(outbox)) == 0


def test_the_outbox_of_other_datasets_is_left_alone(desk: Bench):
    row = {"dataset": "other", "action": "delete", "seq": 1, "chunk_id": "x", "windows": 1}
    with desk.database.write() as connection:
        connection.execute(insert(outbox).values(row))
    engine = engine_of(desk)
    engine.rebuild()
    desk.put("new.md", vector(0, 1))
    engine.refresh()
    with desk.database.read() as connection:
        assert [left.dataset for left in connection.execute(select(outbox))] == ["other"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "state.json").unlink(),
        lambda folder: (folder / "state.json").write_text("{"),
        lambda folder: (folder / "state.json").write_text("[]"),
        lambda folder: (folder / "shard" / "edge_config.json").write_text("nonsense"),
        lambda folder: (folder / "shard" / "edge_config.json").unlink(),
        lambda folder: [f.unlink() for f in folder.glob("shard/segments/*/segment.json")],
        lambda folder: [os.truncate(f, 3) for f in folder.glob("shard/segments/*/*.mappings")],
        lambda folder: [f.unlink() for f in folder.glob("shard/segments/**/vectors/*")],
        lambda folder: [f.write_bytes(b"") for f in folder.glob("shard/segments/**/config.json")],
        lambda folder: [f.unlink() for f in folder.glob("shard/**/*") if f.is_file()],
    ],
)
def test_a_damaged_folder_mends_itself(desk: Bench, damage):
    engine = engine_of(desk)
    engine.refresh()
    engine.close()
    damage(desk.folder / "index")
    assert answers(desk, engine_of(desk)) == ALL


def test_an_index_that_lost_points_is_rebuilt(desk: Bench, builds: list[str]):
    engine = engine_of(desk)
    engine.refresh()
    index = engine._open()
    index.delete([point_id(found.chunk_id) for found in index.nearest(vector(1), 2, None)])
    engine.close()
    assert answers(desk, engine_of(desk)) == ALL
    assert builds == ["built"] * 2


def test_another_model_store_or_format_rebuilds_the_folder(
    desk: Bench, builds: list[str], monkeypatch: pytest.MonkeyPatch
):
    def opened(fingerprint: str) -> None:
        engine = engine_of(desk, fingerprint)
        assert answers(desk, engine) == ALL
        engine.close()

    opened("model/1")
    opened("model/2")
    assert builds == ["built"] * 2
    with desk.database.write() as connection:
        connection.execute(update(meta).where(meta.c.key == "store_id").values(value="another"))
        if desk.database.meta("store_id") is None:
            connection.execute(insert(meta).values(key="store_id", value="another"))
    opened("model/2")
    assert builds == ["built"] * 3
    monkeypatch.setattr(folder_engine, "FORMAT", folder_engine.FORMAT + 1)
    opened("model/2")
    opened("model/2")
    assert builds == ["built"] * 4


def test_what_filters_ask_for_is_read_from_disk(tmp_path: Path):
    index = edge_index_module.EdgeIndex.create(tmp_path / "shard", 4, 20_000)
    fields = index._shard.info().payload_schema
    index.close()
    assert set(fields) == {"kv", "doc_id", "page"}
    assert {str(field.params.memory) for field in fields.values()} == {"Memory.Cold"}


def test_a_build_that_failed_half_way_is_not_taken_for_an_index(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_):
        raise EngineError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(Outbox, "fill", fails)
        with pytest.raises(EngineError, match="disk full"):
            engine_of(desk).refresh()
    assert answers(desk, engine_of(desk)) == ALL


def test_engines_of_one_process_share_the_index_that_one_has_open(desk: Bench):
    first, second = engine_of(desk), engine_of(desk)
    first.refresh()
    assert answers(desk, second) == ALL
    desk.put("new.md", vector(1))
    assert second.refresh() > 0
    assert second.verify() == 0
    assert second.rebuild() == first.rebuild()
    both = answers(desk, first)
    assert "new.md" in both
    second.close()
    assert answers(desk, first) == both
    first.close()
    assert answers(desk, second) == both
    assert answers(desk, first) == both
    with pytest.raises(EngineLockedError, match=DATASET):  # an index of another model
        answers(desk, engine_of(desk, "another/1"))


def test_another_process_is_told_too_and_takes_over_when_the_first_is_killed(desk: Bench):
    holder = in_other_process(desk, "engine.refresh(); print('held', flush=True); input()")
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(EngineLockedError):
            answers(desk, engine_of(desk))
        holder.send_signal(signal.SIGKILL)
    assert answers(desk, engine_of(desk)) == ALL


def test_a_lock_is_reported_while_the_other_process_still_builds(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    original = Outbox.fill
    seen: list[bool] = []

    def fill(*given):
        with pytest.raises(EngineLockedError):
            engine_of(desk).refresh()
        seen.append(True)
        return original(*given)

    monkeypatch.setattr(Outbox, "fill", fill)
    assert answers(desk, engine_of(desk)) == ALL
    assert seen == [True]


@pytest.mark.parametrize("moment", ["delete", "upsert", "flush", "_remove"])
def test_a_process_killed_while_applying_the_outbox_loses_nothing(desk: Bench, moment: str):
    engine = engine_of(desk)
    engine.refresh()
    engine.close()
    desk.put("00.md", vector(1, 0.5), texts=["edited"])
    desk.put("new.md", vector(0, 0, 1))
    target = "outbox.Outbox" if moment == "_remove" else "edge.EdgeIndex"
    killed = in_other_process(
        desk,
        "import os, signal\n"
        "from catalog.store.vectors import edge, outbox\n"
        f"original = {target}.{moment}\n"
        "def dies(*given, **named):\n"
        f"    {'pass' if moment in ('flush', '_remove') else 'original(*given)'}\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"{target}.{moment} = dies\n"
        "engine.refresh()",
    )
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    expected = ["00.md", *ALL[1:], "new.md"]
    assert sorted(answers(desk, engine_of(desk))) == sorted(expected)
    with desk.database.read() as connection:
        assert connection.scalar(select(func.count()).select_from(outbox)) == 0


def test_a_process_that_forgets_to_close_leaves_a_sound_index(desk: Bench, builds: list[str]):
    code = (
        "engine.search(vector(1), 1, everything()); desk.put('x.md', vector(1)); engine.refresh()"
    )
    careless = in_other_process(desk, code)
    assert careless.communicate()[0] == ""
    assert careless.returncode == 0
    assert answers(desk, engine_of(desk)) == ["00.md", "x.md", *ALL[1:]]
    assert builds == []


def test_points_carry_nothing_but_what_filters_and_joins_need(desk: Bench):
    about = {"title": "T", "page": 3, "page_breaks": (4, 7), "sections": ["S"]}
    desk.put("p.md", vector(1), texts=["secret words"], **about)
    engine = engine_of(desk)
    engine.refresh()
    shard = engine._open()._shard
    import qdrant_edge

    request = qdrant_edge.ScrollRequest(limit=100, with_payload=True)
    payloads = [record.payload or {} for record in shard.scroll(request)[0]]
    assert len(payloads) == 13
    assert [payload["page"] for payload in payloads if "page" in payload] == [[3, 4, 5]]
    for payload in payloads:
        assert payload.keys() <= {"chunk", "doc_id", "page", "kv"}
        assert "secret" not in json.dumps(payload)


def put_many(desk: Bench) -> None:
    random = np.random.default_rng(3)
    for index in range(10):
        desk.put(f"n{index}.md", *random.normal(size=(60, DIM)).astype(np.float32))


def quantized_files(engine: EdgeEngine) -> int:
    return len(list(engine._index_folder.glob("segments/*/vector_storage/quantized.data")))


def test_a_small_index_is_not_quantized(desk: Bench):
    engine = engine_of(desk, quantize_from=10_000)
    put_many(desk)
    engine.refresh()
    desk.put("last.md", vector(0, 0, 1))
    engine.refresh()
    assert quantized_files(engine) == 0


def test_a_large_index_that_is_filled_again_is_quantized_at_once_and_has_no_graph(desk: Bench):
    put_many(desk)
    engine = engine_of(desk, quantize_from=200)
    engine.rebuild()
    assert quantized_files(engine) == 1
    links = engine._index_folder.glob("segments/*/vector_index/links_compressed.bin")
    assert sum(file.stat().st_size for file in links) < 600 * 8


def test_an_index_of_an_older_version_is_quantized_at_its_next_change(desk: Bench):
    put_many(desk)
    older = engine_of(desk, quantize_from=10_000)
    expected = older.search(vector(1, 2, 3), 10, everything())
    older.close()
    engine = engine_of(desk, quantize_from=200)
    assert engine.search(vector(1, 2, 3), 10, everything()) == expected
    assert quantized_files(engine) == 0
    desk.put("last.md", vector(0, 0, 0, 0, 1))
    engine.refresh()
    assert quantized_files(engine) == 1
    assert engine.search(vector(1, 2, 3), 10, everything()) == expected


def test_every_window_of_a_deleted_chunk_leaves_the_index(desk: Bench):
    desk.put("long.md", [vector(1), vector(0, 1), vector(0, 0, 1)])
    engine = engine_of(desk)
    engine.refresh()
    assert engine._open().count == 15
    drop(desk.database, DATASET, "long.md")
    assert engine.refresh() == 3
    assert engine._open().count == 12


@pytest.mark.slow
def test_deleted_points_are_cleared_out_by_refreshes(desk: Bench):
    engine = engine_of(desk)
    for round_ in range(4):
        passages = [vector(1, index, round_) for index in range(600)]
        desk.put("big.md", *passages, texts=[f"{round_}-{index}" for index in range(600)])
        engine.refresh()
    assert engine._open().count == 612
    assert len(engine.search(vector(1), 700, everything())) == 612


def test_a_stored_vector_of_another_dimension_is_named(desk: Bench):
    short = np.ones(3, dtype="<f4").tobytes()
    with desk.database.write() as connection:
        for key in connection.scalars(select(embeddings.c.embed_key)).all():
            sealed = {"vector": short, "checksum": vector_checksum(key, short)}
            of_it = embeddings.c.embed_key == key
            connection.execute(update(embeddings).where(of_it).values(sealed))
    with pytest.raises(EmbeddingMismatchError, match="3 dimensions"):
        engine_of(desk).refresh()


def test_a_folder_that_cannot_be_used_is_named(desk: Bench):
    (desk.folder / "index").write_text("a file, not a folder")
    with pytest.raises(EngineError, match="index"):
        engine_of(desk).refresh()


def free(monkeypatch: pytest.MonkeyPatch, megabytes: int) -> None:
    usage = shutil._ntuple_diskusage(10**12, 10**12 - megabytes * 2**20, megabytes * 2**20)  # type: ignore[attr-defined]
    monkeypatch.setattr(folder_engine.shutil, "disk_usage", lambda _folder: usage)


def test_on_a_full_disk_nothing_is_opened_built_or_deleted(
    desk: Bench, monkeypatch: pytest.MonkeyPatch, builds: list[str]
):
    engine_of(desk).refresh()
    desk.opened[-1].close()
    free(monkeypatch, 63)
    for call in ("refresh", "rebuild", "search"):
        engine = engine_of(desk)
        with pytest.raises(
            EngineBlockedError, match=r"has 63 MB left, but .* need 64 MB: free some space"
        ):
            answers(desk, engine) if call == "search" else getattr(engine, call)()
    free(monkeypatch, 64)
    assert answers(desk, engine_of(desk)) == ALL
    assert builds == ["built"]


def test_a_disk_that_fills_up_stops_changes_and_not_the_searches_of_an_open_index(
    desk: Bench, monkeypatch: pytest.MonkeyPatch
):
    engine = engine_of(desk)
    engine.refresh()
    free(monkeypatch, 63)
    assert answers(desk, engine) == ALL
    assert engine.refresh() == 0
    desk.put("new.md", vector(1))
    with pytest.raises(EngineBlockedError, match="free some space"):
        answers(desk, engine)
    free(monkeypatch, 64)
    assert sorted(answers(desk, engine)) == [*ALL, "new.md"]


def test_an_index_needs_room_for_each_of_its_points(desk: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(folder_engine, "_PAYLOAD", 2**20)
    free(monkeypatch, 64 + 12 - 1)
    with pytest.raises(EngineBlockedError, match=r"75 MB left, but .* 76 MB"):
        engine_of(desk).refresh()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM, errno.EACCES])
def test_an_index_that_cannot_be_opened_for_a_passing_reason_is_kept(
    desk: Bench, monkeypatch: pytest.MonkeyPatch, builds: list[str], number: int
):
    engine_of(desk).refresh()
    desk.opened[-1].close()

    class Refusing:
        @staticmethod
        def load(*_given):
            raise RuntimeError(f"Service internal error: refused (os error {number})")

    with monkeypatch.context() as patched:
        patched.setattr(edge_index_module.edge, "EdgeShard", Refusing)
        with pytest.raises(EngineBlockedError, match=f"os error {number}"):
            answers(desk, engine_of(desk))
    assert answers(desk, engine_of(desk)) == ALL
    assert builds == ["built"]


def test_a_folder_that_may_not_be_used_blocks_the_index(desk: Bench):
    (desk.folder / "index").write_text("a file in its place")
    with pytest.raises(EngineBlockedError, match="folder"):
        answers(desk, engine_of(desk))


@pytest.mark.slow
def test_no_changed_bit_of_the_mappings_ends_the_process(desk: Bench):
    engine = engine_of(desk)
    engine.refresh()
    engine.close()
    (mappings,) = desk.folder.rglob("mutable_id_tracker.mappings")
    sound = mappings.read_bytes()
    for at in range(0, len(sound), 3):
        changed = bytearray(sound)
        changed[at] ^= 0x40
        mappings.write_bytes(changed)
        assert answers(desk, engine) == ALL, at
        assert "id_tracker" in engine.pop_defect()
        engine.close()
        (mappings,) = desk.folder.rglob("mutable_id_tracker.mappings")
        sound = mappings.read_bytes()


@pytest.mark.parametrize("bit", [32, 40, 63])
def test_a_count_that_changed_keeps_no_search_busy(desk: Bench, bit):
    engine = engine_of(desk)
    engine.refresh()
    engine.close()
    for number in range(len(list(desk.folder.rglob("status.dat")))):
        file = sorted(desk.folder.rglob("status.dat"))[number]
        content = bytearray(file.read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)
        assert answers(desk, engine) == ALL, file
        assert "counts more" in engine.pop_defect()
        engine.close()
