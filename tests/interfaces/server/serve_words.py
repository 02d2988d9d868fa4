"""Run by the tests: ``catalog serve`` with the tests' own model, which can be told to wait.

A query with "slowly" in it waits until the file named by ``TEST_GATE`` is there, and says so in
the file beside it. ``TEST_GRACE`` is how long a running request has at the end.
"""

import os
import sys
import threading
from pathlib import Path

from catalog.embedding.model import EmbeddingModel
from catalog.interfaces.cli import main
from catalog.interfaces.server import listen as listening
from catalog.library.library import Library
from fakes import WordEncoder


class WaitingEncoder(WordEncoder):
    def encode(self, texts):
        gate = Path(os.environ.get("TEST_GATE", "/"))
        if any("slowly" in text for text in texts):
            gate.with_suffix(".waiting").touch()
            while not gate.exists():
                threading.Event().wait(0.01)
        return super().encode(texts)


MODEL = EmbeddingModel(WaitingEncoder())
Library.model = property(lambda library: MODEL)
listening._GRACE_SECONDS = float(os.environ.get("TEST_GRACE", listening._GRACE_SECONDS))
sys.argv[0] = "catalog"
main()
