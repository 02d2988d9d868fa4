"""One warm engine for many processes: the HTTP API, ``catalog serve``, and who asks there."""
