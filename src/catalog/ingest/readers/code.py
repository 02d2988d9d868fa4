"""Source code, configuration and markup that is read as it stands."""

from __future__ import annotations

from typing import ClassVar

from catalog.ingest.readers.plain import PlainTextReader


class CodeReader(PlainTextReader):
    """Plain text that may name its encoding: ``# -*- coding: latin-1 -*-``, ``<?xml …?>``."""

    declares_encoding: ClassVar[bool] = True
