"""``python -m catalog``, the same as the ``catalog`` command."""

from catalog.interfaces.cli import main

main()
