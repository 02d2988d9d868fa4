"""Golden sets, metrics, significance and reports: proving how well a search finds."""
