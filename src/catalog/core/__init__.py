"""Words everyone shares, rules that need no I/O: settings, models, scope, filters, ids, errors."""
