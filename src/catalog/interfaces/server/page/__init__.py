"""The page of ``catalog serve``: search in a browser; see ``docs/decisions/0053-page.md``."""
