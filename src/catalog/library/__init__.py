"""An opened home: its store, models and indexes; indexing, browsing, references, cards, health."""
