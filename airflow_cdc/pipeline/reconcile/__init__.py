"""Ordered change events of one key become at most one row change."""
