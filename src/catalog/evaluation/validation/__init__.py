"""Validate a dataset by a suite of questions: measure, apply criteria, decide if it is ready."""
