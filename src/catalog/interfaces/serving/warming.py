"""Loading what queries need while the process already answers."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from catalog.core.errors import CatalogError
from catalog.interfaces.serving.defects import log_bug

if TYPE_CHECKING:
    from catalog.interfaces.operations import Engine

_LOG = logging.getLogger(__name__)


def warm_in_background(engine: Engine) -> None:
    """Start a thread that warms the engine, if it can be; a failure is logged and no more."""
    warm = getattr(engine, "warm", None)
    if warm is None:
        return

    def run() -> None:
        try:
            warm()
        except CatalogError as error:
            _LOG.warning("not warmed up: %s", error)
        except Exception as error:  # noqa: BLE001 - logged; a query tells whoever asks it
            log_bug("warming up", error)

    threading.Thread(target=run, name="catalog-warm", daemon=True).start()
