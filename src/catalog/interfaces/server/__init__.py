"""One warm engine for many processes: the HTTP API, ``catalog serve``, and who asks there."""

from __future__ import annotations
