"""Archived files of every format become lines, whatever shape their records have."""
