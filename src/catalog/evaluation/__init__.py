"""Golden sets, metrics, significance and reports: measure how well a search finds."""
