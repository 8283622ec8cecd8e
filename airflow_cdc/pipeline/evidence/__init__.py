"""What the archive proves: lives of a topic, epochs of the source's log, whole snapshots, and what these make void."""
