"""Making the cards of documents: their summaries, a few documents at a time."""

from __future__ import annotations

from catalog.ingest.summaries import summarise
from catalog.store import Database
from catalog.store.cards import put_cards, without_card

BATCH = 200  # documents in one transaction


def make_cards(database: Database, dataset: str, *, wait: bool = True) -> int:
    """Make the cards that are missing or not current; how many were made.

    What is made stays, whatever ends the run, and the next one goes on from there. Raises
    :class:`StoreBusyError` when another process is writing, at once if not to ``wait``.
    """
    made = 0
    while True:
        with database.read() as connection:
            cards = [
                (card, summarise(text, headings=(card.title, *card.headings)))
                for card, text in without_card(connection, dataset, BATCH)
            ]
        if not cards:
            return made
        with database.write(wait=wait) as connection:
            made += put_cards(connection, cards)
