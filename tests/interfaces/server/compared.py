"""Searches that are compared on the page."""

import threading

CALLS = []
STARTED, GO_ON = threading.Event(), threading.Event()


def good(query):
    CALLS.append(query)
    return ["keys.md", "guides/backup.md"]


def bad(query):
    return ["bread.txt", "guides/backup.md"]


def failing(query):
    raise ValueError("<b>out of order</b>")


def slow(query):
    STARTED.set()
    GO_ON.wait(20)
    return ["keys.md"]
