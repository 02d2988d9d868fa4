"""Office documents and e-books: ZIP archives of XML."""
