"""What every room shares: settings, data classes, scope, filters, ids, errors."""
