"""Find passages in your own documents, and prove how well."""

__version__ = "0.1.0"
