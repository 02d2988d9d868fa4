"""Subtitles, transcripts and described frames: text that belongs to seconds."""
