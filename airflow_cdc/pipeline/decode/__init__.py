"""Archived lines become change events of one shape, or rejects with a reason."""
