"""Readers of mail: messages, mailboxes, Outlook's own files."""
