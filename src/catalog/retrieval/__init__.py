"""Search as plain functions, without a framework."""
