"""The versions of the schema; a released version never changes."""
