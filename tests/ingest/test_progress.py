"""How fast a run goes, how long it will take, and how it is told."""

import signal
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from catalog.ingest.sync_report import Pace, next_batch
from catalog.interfaces.cli.output import TerminalProgress, time_left
from catalog.library.indexing import Indexer
from catalog.store.database import hold_lock
from fakes import WordEncoder, open_library, write
from tables import table


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def watched(pieces, total):
    """Yield the time left after each (seconds, amount)."""
    clock = Clock()
    pace = Pace(total, clock)
    for seconds, amount in pieces:
        clock.now += seconds
        pace.advance(amount)
        yield pace.seconds_left


def test_the_first_piece_is_not_measured_since_it_loads_the_model():
    # 20 s for the first 10 with the load, then 1 s for each 10: 70 are left, 7 s
    first, *others = watched([(20, 10), (1, 10), (1, 10)], 100)
    assert first is None
    assert others == pytest.approx([8.0, 7.0])


def test_the_time_left_is_of_the_last_half_minute_above_all():
    """Of a machine that becomes four times slower the estimate is within a factor of two soon."""
    pieces = [(1, 10)] * 100 + [(4, 10)] * 15
    *_, last = watched(pieces, 10_000)
    true = (10_000 - 1_150) / 10 * 4
    assert true / 2 < last <= true


def test_the_time_left_depends_on_the_sizes_of_the_pieces():
    # 1 s for 10 whatever the pieces are: the last, of 600, takes 60 s
    *_, last = watched([(1, 10), (5, 50), (0.2, 2), (30, 300), (1, 10)], 972)
    assert last == pytest.approx(60.0)


def test_no_estimate_is_shown_before_there_is_data():
    pace = Pace(10, Clock())
    assert (pace.seconds_left, pace.rate_text()) == (None, "")
    pace.advance(0)
    assert pace.seconds_left is None


@table("seconds, words")
def test_the_time_left_in_words(seconds, words):
    assert time_left(seconds) == words


def test_a_slow_model_gets_smaller_batches_and_a_fast_one_larger():
    assert [next_batch(32, seconds) for seconds in (20.0, 3.0, 0.5)] == [16, 32, 64]
    assert next_batch(1, 60.0) == 1


class Watcher:
    """Remembers what a run told."""

    def __init__(self):
        self.totals, self.done, self.counts, self.phases = {}, {}, [], []

    def start(self, total, doing="", *, then=""):
        self.phases.append(doing)
        self.doing, self.totals[doing], self.done[doing] = doing, total, 0

    def advance(self, amount, label, counts=""):
        self.done[self.doing] += amount
        if counts:
            self.counts.append(f"{self.doing} {label}: {counts.partition(' a second')[0]}")


def test_a_run_tells_files_of_files_and_moves_within_a_long_document(tmp_path):
    text = "\n\n".join(f"# H{n}\n\n{f'word{n} ' * 60}" for n in range(12))
    write(tmp_path / "notes", long_dot_md=text)
    watcher = Watcher()
    with open_library(tmp_path / "home") as library:
        library.model = replace(library.model, batch_size=4)
        chunks = Indexer(library).build(tmp_path / "notes", "notes", progress=watcher).chunks
    assert watcher.counts[0] == f"reading long.md: 1 of 1 files, {chunks} passages"
    moves = [told for told in watcher.counts if told.startswith("embedding long.md")]
    assert len(moves) == 1 + -(-(chunks - 2) // 4) >= 3  # the first batch is of two
    assert f"{chunks} of {chunks} passages" in moves[-1]
    for doing in ("reading", "embedding"):
        assert watcher.done[doing] == pytest.approx(watcher.totals[doing])


def test_unchanged_files_are_no_work_left(tmp_path):
    write(tmp_path / "notes", a_dot_md="A walrus.", b_dot_md="An otter.")
    with open_library(tmp_path / "home", WordEncoder()) as library:
        Indexer(library).build(tmp_path / "notes", "notes")
        watcher = Watcher()
        write(tmp_path / "notes", b_dot_md="Another otter.")
        Indexer(library).update("notes", progress=watcher)
    assert watcher.counts[-1].startswith("embedding b.md: 1 of 1 passages")
    assert watcher.done["embedding"] == watcher.totals["embedding"]


def test_without_a_terminal_a_line_tells_counts_pace_and_time_left(capsys, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("catalog.interfaces.cli.output.time.monotonic", clock)
    with TerminalProgress() as progress:
        progress.start(100, "embedding")
        for done in (1, 2, 3):
            clock.now += 6
            progress.advance(10, "a.md", f"{done} of 10 passages")
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "embedding   30%  3 of 10 passages, 42 s left  a.md"
    assert lines[0] == "embedding"


def test_while_files_are_read_the_time_left_is_of_that_and_what_follows_is_reported(
    capsys, monkeypatch
):
    clock = Clock()
    monkeypatch.setattr("catalog.interfaces.cli.output.time.monotonic", clock)
    with TerminalProgress() as progress:
        progress.start(30, "reading", then="embedding")
        for done in (1, 2):
            clock.now += 6
            progress.advance(10, "a.md", f"{done} of 3 files")
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "reading"
    assert last == "reading   67%  2 of 3 files, 6 s left of reading, then embedding  a.md"


def test_an_interruption_that_something_swallowed_ends_the_work_at_its_next_step():
    before = signal.getsignal(signal.SIGINT)
    with TerminalProgress() as progress:
        progress.start(100, "embedding")
        with suppress(KeyboardInterrupt):  # as an extension module does while it is imported
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            progress.advance(10, "a.md")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_names_what_it_does_from_its_beginning_to_its_end(tmp_path):
    write(tmp_path / "notes", a_dot_md="A walrus.", b_dot_md="An otter.")
    watcher = Watcher()
    with open_library(tmp_path / "home", WordEncoder()) as library:
        Indexer(library).build(tmp_path / "notes", "notes", progress=watcher)
        first, watcher.phases = watcher.phases, []
        Indexer(library).update("notes", progress=watcher)
    reading = ["reading", "indexing words"]
    assert first == [*reading, "starting the model", "embedding"]
    assert watcher.phases == reading


def test_the_first_batches_are_small_so_that_something_is_stored_soon(tmp_path):
    """And the next ones larger, as long as the model is quick."""
    sizes = []

    class Counting(WordEncoder):
        def encode(self, texts):
            sizes.append(len(texts))
            return super().encode(texts)

    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.md").write_text(f"Walrus number {number}.")
    with open_library(tmp_path / "home", Counting()) as library:
        library.model = replace(library.model, batch_size=16)
        Indexer(library).build(folder, "notes")
    assert sizes == [2, 4, 8, 16, 10]


def test_a_run_that_waits_for_another_says_so_at_once(tmp_path):
    write(tmp_path / "notes", a_dot_md="A walrus.")
    with ExitStack() as other, open_library(tmp_path / "home") as library:
        lock = library.settings.home / "locks" / "notes.lock"
        other.enter_context(hold_lock(lock, seconds=0, busy="held"))

        class Ending(Watcher):
            """Ends the other run as soon as this one says that it waits."""

            def start(self, total, doing="", *, then=""):
                super().start(total, doing, then=then)
                other.close()

        watcher = Ending()
        Indexer(library).build(tmp_path / "notes", "notes", progress=watcher)
    assert watcher.phases[:2] == [
        "another process is indexing 'notes': waiting for it up to 30 s",
        "reading",
    ]
