"""``catalog index update --watch``: what changes while texts are embedded."""

import os
import threading

import pytest

from catalog.interfaces.cli.folder_watch import follow
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import WordEncoder, open_library, write


def test_what_changes_while_texts_are_embedded_is_found_by_words_before_the_rest_is(
    tmp_path, monkeypatch
):
    folder, seen, reports = tmp_path / "notes", {}, []
    for day, name in enumerate("abcdefgh"):
        write(folder, **{f"{name}_dot_md": f"# {name}\n\nwalrus of {name}."})
        os.utime(folder / f"{name}.md", (1_600_000_000 + day * 86_400,) * 2)
    changed, taken, over = threading.Event(), threading.Event(), threading.Event()

    def watch(root, **_):
        changed.wait()
        yield {("modified", root / "a.md")}
        taken.set()
        over.wait()
        raise RuntimeError("the end of the watch")

    class Encoder(WordEncoder):
        calls = 0

        def encode(self, texts):
            self.calls += 1
            if self.calls == 1:
                write(folder, a_dot_md="# a\n\nAn otter, all of a sudden.")
                changed.set()
                taken.wait()
            if self.calls == 2:
                with open_library(tmp_path / "home") as other:
                    results = SearchServiceV2(other).search("otter", dataset="notes")
                seen["by words"], seen["note"] = [one.path for one in results], results.notes[0]
                seen["first"] = " ".join(texts)
            if self.calls == 4:
                over.set()
            return super().encode(texts)

    monkeypatch.setattr("watchfiles.watch", watch)
    encoder = Encoder()
    with open_library(tmp_path / "home", encoder) as library:
        library.model.embed_batch_size = 2
        encoder.down = True
        encoder.calls = -100
        Indexer(library).build(folder, "notes")
        encoder.down, encoder.calls = False, 0
        with pytest.raises(RuntimeError, match="the end of the watch"):
            reports.extend(follow(Indexer(library), "notes", {"reread": False}))
        assert Indexer(library).stats("notes").vectors == 8
    assert seen["by words"][0] == "a.md"
    assert seen["note"].startswith("by meaning: 25 %")
    assert "otter" in seen["first"]
    assert len(encoder.texts) == len(set(encoder.texts)) == 8
    assert [(report.updated, report.incomplete) for report in reports] == [(0, 6), (1, 0)]
