"""PDF: pages in reading order, with their headings."""
