"""Answers as a terminal shows them: the same text, whichever process made it."""

from __future__ import annotations

from catalog.interfaces.terminal.printed import Form, TerminalText, render

__all__ = ["Form", "TerminalText", "render"]
