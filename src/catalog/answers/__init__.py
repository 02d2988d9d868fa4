"""Answers from passages: whether they support a sentence, and whether to answer at all."""
