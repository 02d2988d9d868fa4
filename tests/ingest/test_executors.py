"""Work in other processes: in order, lost to nobody, and none of them left behind."""

import os
import signal
import subprocess
import time

import psutil
import pytest

import lethal_work
from catalog.core.errors import ConfigError
from catalog.ingest.executors import Lost
from catalog.ingest.executors.base import map_ahead
from catalog.ingest.executors.processes import Processes
from processes import Forked, fork_workers


@pytest.fixture(scope="module")
def processes():
    with pytest.MonkeyPatch.context() as patch, Processes(2) as executor:
        fork_workers(patch)
        yield executor


def test_results_come_in_the_order_of_their_items(processes):
    assert list(processes.map(lethal_work.work, range(7))) == [number**2 for number in range(7)]


def test_an_item_that_ends_its_process_each_time_is_lost_alone(processes):
    before, lost, after = processes.map(lethal_work.work, [3, "fatal", 4])
    assert (before, after) == (9, 16)
    assert lost == Lost("the process that worked on it ended (exit -9), in each of 2 attempts")


def test_an_item_whose_process_is_killed_from_outside_is_done_by_another(processes):
    for process in list(processes._idle):
        os.kill(process._process.pid, signal.SIGKILL)
    assert list(processes.map(lethal_work.work, [5, 6])) == [25, 36]


def test_an_error_of_the_work_is_raised(processes):
    with pytest.raises(ValueError, match="it is wrong"):
        list(processes.map(lethal_work.work, [1, "wrong"]))


def test_work_that_cannot_leave_this_process_is_told_at_once(processes):
    with pytest.raises(ConfigError, match="set workers to 1"):
        list(processes.map(lambda item: item, [1]))


def test_items_are_taken_as_there_is_room():
    class Done:
        def __init__(self, item):
            self.item = item

        def result(self):
            return self.item

        def cancel(self):
            cancelled.append(self.item)

    taken, cancelled = [], []
    items = (taken.append(item) or item for item in (1, 1, 9, 1, 1))
    results = map_ahead(Done, items, size=1, weigh=float, room=10)
    assert next(results) == 1
    assert taken == [1, 1, 9]  # 11 is more than there is room for
    assert [next(results), next(results)] == [1, 9]
    results.close()
    assert cancelled == [1, 1]


PROGRAM = """
import lethal_work
from catalog.ingest.executors.processes import Processes

with Processes(2) as executor:
    print(*executor.map(lethal_work.work, ["pid", "pid"]), flush=True)
    try:
        list(executor.map(lethal_work.work, ["sleep", "sleep"]))
    except KeyboardInterrupt:
        pass
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_run_however_it_ends(how):
    run = Forked(["-c", PROGRAM], stdout=subprocess.PIPE)
    pids = {int(pid) for pid in run.stdout.readline().split()}
    assert pids
    run.send_signal(how)
    run.wait(30)
    run.stdout.close()
    patience = time.monotonic() + 20
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not any(map(psutil.pid_exists, pids))
