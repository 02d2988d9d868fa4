"""Answers as a terminal shows them: the same text, whichever process made it."""

from __future__ import annotations

from catalog.interfaces.terminal.printed import Form, Printed, render

__all__ = ["Form", "Printed", "render"]
