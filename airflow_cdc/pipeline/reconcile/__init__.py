"""Reconcile: from a key's ordered change events to at most one row change."""
