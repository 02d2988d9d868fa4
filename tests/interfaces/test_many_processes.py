"""Several processes on one store: searches go on, whole, while another process updates."""

import subprocess
import sys
from pathlib import Path

from catalog.search_v2.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_workspace

SCRIPT = Path(__file__).with_name("searching.py")


def revision(number: int) -> str:
    body = "alpha " + "filler " * 40
    return "\n\n".join(f"# Part {part}\n\n{body}version {number}" for part in range(3))


def test_every_answer_is_whole_while_another_process_updates(tmp_path):
    folder, home, stop = tmp_path / "notes", tmp_path / "home", tmp_path / "stop"
    folder.mkdir()
    (folder / "still.md").write_text("alpha version that never changes")
    (folder / "changing.md").write_text(revision(0))
    with open_workspace(home) as workspace:
        Indexer(workspace).build(folder, "notes")
    command = [sys.executable, str(SCRIPT), str(home), str(stop)]
    environment = {"PYTHONPATH": str(SCRIPT.parents[1]), "PATH": ""}
    searchers = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    try:
        for searcher in searchers:
            assert searcher.stdout.readline() == "ready\n", searcher.communicate()[1]
        with open_workspace(home) as workspace:
            for number in range(1, 26):
                (folder / "changing.md").write_text(revision(number))
                report = Indexer(workspace).update("notes")
                assert report.failed == ()
    finally:
        stop.touch()
        ended = [searcher.communicate(timeout=60) for searcher in searchers]
    assert [searcher.returncode for searcher in searchers] == [0] * 3, [err for _, err in ended]
    assert all(int(out) > 3 for out, _ in ended)
    with open_workspace(home) as workspace:
        service = SearchServiceV2(workspace)
        answer = service.search(
            "alpha version", dataset="notes", mode="vector", doc_ids=["changing.md"]
        )
        assert Indexer(workspace).stats("notes").pending_points == 0
        assert answer[0].text.endswith("version 25")
