"""Code shared by every room: settings, data classes, scope, filters, ids, errors."""
