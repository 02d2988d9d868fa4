"""What can be asked of a store, once for every edge: command line, agents, MCP and HTTP."""

from __future__ import annotations

from catalog.interfaces.operations.base import Call, CallResult, Operation
from catalog.interfaces.operations.engine import Engine, LocalEngine
from catalog.interfaces.operations.table import OPERATIONS

__all__ = ["OPERATIONS", "Call", "CallResult", "Engine", "LocalEngine", "Operation"]
