"""Keyword engines behind one protocol, found by name; each of ours is one file."""
