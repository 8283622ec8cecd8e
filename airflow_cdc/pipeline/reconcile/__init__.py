"""Reconcile: from ordered change events to what a table takes: a row change per key, row versions, or copies of equal rows."""
