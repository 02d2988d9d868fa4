"""Holding a dataset to a suite of questions: measured, judged by criteria, ready or not."""
