"""What queries need is loaded beside the first answers."""

import threading
from types import SimpleNamespace

import pytest

from catalog.core.errors import ModelUnavailableError, StoreError
from catalog.interfaces.calls import LocalEngine
from catalog.interfaces.server.workers import warm_in_background

DEADLINE = 20


class Engine:
    def __init__(self, warm):
        self.warm = warm


@pytest.mark.parametrize("error", [ModelUnavailableError("no model"), RuntimeError("query text")])
def test_a_warm_up_that_fails_is_logged_without_what_a_defect_says(error, caplog):
    def warm():
        raise error

    warm_in_background(Engine(warm))
    for thread in threading.enumerate():
        if thread.name == "catalog-warm":
            thread.join(DEADLINE)
    assert "warm" in caplog.text
    assert "query text" not in caplog.text


def test_a_library_that_is_closed_while_it_warms_up_is_no_failure():
    class Searching:
        def warm_up(self, dataset):
            library.is_closed = True
            raise StoreError("closed")

    library = SimpleNamespace(
        is_closed=False, datasets=lambda: ["a"], seen_datasets=lambda dataset: (["a", "b"], None)
    )
    engine = LocalEngine(library)
    vars(engine)["service"] = Searching()
    engine.warm()
    library.is_closed = False
    library.seen_datasets = lambda dataset: 1 / 0
    with pytest.raises(ZeroDivisionError):
        engine.warm()
