"""Passages in several languages, each with questions that use other forms of its words."""

from tables import read_cases

BY_LANGUAGE = read_cases(__file__)
