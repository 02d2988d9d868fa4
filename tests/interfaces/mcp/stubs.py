"""Tools and engines that do what a test needs, without a store."""

import os
import subprocess
import sys
import threading
from typing import ClassVar

from catalog.interfaces.agents.tool import AgentTool, ToolArguments, ToolData, ToolResult


class Said(ToolArguments):
    """What to do."""

    CLAMPED: ClassVar = {"times": (1, 3)}
    word: str
    times: int = 1


class Echoed(ToolData):
    """What was said."""

    echo: str | None = None
    nothing: str | None = None


class StubEngine:
    """Answers operations from a table of functions, and tells when calls begin and may end."""

    def __init__(self, **answers):
        self.answers = answers
        self.began = threading.Semaphore(0)
        self.go = threading.Event()
        self.most = 0
        self.inside = 0
        self.lock = threading.Lock()
        self.closed = False

    def ask(self, operation, arguments):
        return self.answers[operation](arguments)

    def close(self):
        self.closed = True

    def hold(self):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.began.release()
        self.go.wait()
        with self.lock:
            self.inside -= 1


def run_echo(engine, call, notes):
    if call.word == "hold":
        engine.hold()
    if call.word == "noise":
        make_noise()
    if call.word == "fail":
        raise ValueError(call.word.upper())
    echo = call.word * call.times
    return ToolResult(f"echo: {echo}", {"status": "ok", "echo": echo, "notes": list(notes)})


ECHO = AgentTool("echo", "Echo", "Says it again.", Said, Echoed, run_echo)
TOOLS = {"echo": ECHO}


def make_noise():
    """Print in every way a library may."""
    print("NOISE of print", flush=True)
    print("NOISE left in the buffer")
    sys.__stdout__.write("NOISE of the first sys.stdout\n")
    os.write(1, b"NOISE of a C library\n")
    subprocess.run(["echo", "NOISE of a child"], check=True)


def status(**documents):
    """A status answer with these datasets and their numbers of documents."""
    datasets = [{"dataset": name, "documents": count} for name, count in documents.items()]
    return {"datasets": datasets}
