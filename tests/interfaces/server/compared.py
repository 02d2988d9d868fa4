"""Searches that are compared on the page."""

CALLS = []


def good(query):
    CALLS.append(query)
    return ["keys.md", "guides/backup.md"]


def bad(query):
    return ["bread.txt", "guides/backup.md"]


def failing(query):
    raise ValueError("<b>out of order</b>")
