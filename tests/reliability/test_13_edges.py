"""Nobody who may call can hold up, fill up or misread the server: the edges of D4.13."""

import os
import random
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

CHAOS_SECONDS = float(os.environ.get("IDX_TEST_CHAOS_SECONDS", "0"))
SEED = int(os.environ.get("IDX_TEST_SEED", "0"))


def chaos_seeds():
    """Seeds to try, once what is known has been: one to replay, or fresh ones for the time set."""
    if SEED:
        yield SEED
        return
    end = time.monotonic() + CHAOS_SECONDS
    while time.monotonic() < end:
        yield random.SystemRandom().randrange(1, 2**31)


def test_no_text_of_a_request_takes_longer_than_its_length_lets_it():
    child = Path(__file__).with_name("request_parsers.py")
    for seed in chain([0], chaos_seeds()):
        command = [sys.executable, str(child), "20000", str(seed)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        lines = run.stdout.splitlines() or [""]
        assert lines[-1] == "all parsed", f"seed {seed}: {lines[-1]} {run.stderr[-500:]}"
