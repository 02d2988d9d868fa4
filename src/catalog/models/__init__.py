"""Model files: where they are, for all kinds of models, and whether they are intact."""
