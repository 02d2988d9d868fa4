"""The schema's versions, each frozen once released."""
