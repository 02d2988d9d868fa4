"""Run by test_many_processes: search one store over and over until a file appears."""

import sys
from pathlib import Path

from catalog.search_v2.service import SearchServiceV2
from fakes import open_workspace

home, stop = map(Path, sys.argv[1:])
count = 0
with open_workspace(home) as workspace:
    service = SearchServiceV2(workspace)
    print("ready", flush=True)
    while not stop.exists():
        answer = service.search("alpha version", dataset="notes", top_k=10)
        failed = [stage for stage in answer.stages if stage.status == "failed"]
        assert not failed, failed
        versions = {hit.text.split()[-1] for hit in answer if hit.path == "changing.md"}
        assert len(versions) == 1, f"not one revision in one answer: {versions} {answer.stages}"
        assert {hit.path for hit in answer} >= {"changing.md", "still.md"}
        count += 1
print(count)
