"""Measurements: ours and its rivals in turn, on the same events, in the same run."""
