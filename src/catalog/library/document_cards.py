"""Make the cards of documents with their summaries, a few documents at a time."""

from __future__ import annotations

import logging

from catalog.ingest.summaries import summarise
from catalog.store import Database
from catalog.store.cards import ids_without_card, read_uncarded_documents, save_cards
from catalog.store.filter_sql import DatasetNames

_log = logging.getLogger(__name__)

BATCH = 50  # documents in one transaction: others wait some tenths of a second
CARDS_PER_QUERY = 200  # documents, so that one who asks waits for some tenths of a second at most
CARDS_MADE_LATER = "the next queries make the rest, or an update of the index makes all"


def make_cards(
    database: Database, dataset: DatasetNames, *, wait: bool = True, limit: int | None = None
) -> int:
    """Make cards that are missing or outdated, at most ``limit``; return their number.

    The write lock is taken before anything is summarised, so that no work is lost to another
    process. Finished cards stay if the run is interrupted, and the next run continues from there.
    Raises :class:`StoreBusyError` while another process is writing; without ``wait``, at once.
    """
    count = last = 0
    while (limit is None or count < limit) and _is_any_lacking(database, dataset, last):
        most = BATCH if limit is None else min(BATCH, limit - count)
        with database.write(wait=wait) as connection:
            summaries = {
                document: _summarise(text)
                for document, text in read_uncarded_documents(connection, dataset, most, after=last)
            }
            if not summaries:  # another process has made them
                return count
            count += save_cards(connection, summaries)
            last = max(summaries)
    return count


def _summarise(text: str) -> str:
    try:
        return summarise(text)
    except Exception as error:  # noqa: BLE001 - one odd text ends no run: it has no summary
        _log.warning("no summary of a document: %s: %s", type(error).__name__, error)
        return ""


def _is_any_lacking(database: Database, dataset: DatasetNames, after: int) -> bool:
    lacking = ids_without_card(dataset, after=after).limit(1)
    with database.read() as connection:
        return connection.scalar(lacking) is not None
