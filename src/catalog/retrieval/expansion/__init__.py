"""Other words for a query: a language model's lines, which of them to keep, and asking them."""
