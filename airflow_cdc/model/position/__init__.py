"""Places in a source's log and in a topic: positions, epochs, lanes, reaches and snapshots."""
