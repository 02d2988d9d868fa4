"""Running the command line in this process."""

import pytest


@pytest.fixture
def catalog(command):
    """The same; files whose commands need more around them have a ``catalog`` of their own."""
    return command
