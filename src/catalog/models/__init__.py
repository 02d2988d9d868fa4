"""Model files: where those of a model lie, of whatever kind, and whether they are sound."""
