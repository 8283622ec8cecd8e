"""Sessions, Spark Connect, quoted SQL, errors and file systems: all that is about Spark alone."""
