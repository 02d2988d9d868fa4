"""Other words for a query: lines from a language model, which lines to keep, and their search."""
