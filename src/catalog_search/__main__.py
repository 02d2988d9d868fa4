"""``python -m catalog_search``, the same as the ``catalog`` command."""

from catalog_search import main

main()
