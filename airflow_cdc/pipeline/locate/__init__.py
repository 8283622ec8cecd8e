"""Where archived records stand in the source's log: parts of files, files applied before, begins and ends."""
