"""From files to stored chunks: discovery, readers, chunkers, pipeline steps and ``sync``."""
