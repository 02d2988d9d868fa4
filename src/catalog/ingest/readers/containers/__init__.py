"""Word and PowerPoint documents and e-books: ZIP archives of XML."""
