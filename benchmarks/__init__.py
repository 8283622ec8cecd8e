"""The same work, ours against the textbook's, as ratios in one run: `make bench`."""
