"""Rebuild, reprocess, replay, retype: make a table right from the archive, on request."""
