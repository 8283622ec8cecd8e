"""What the archive and the state show without Spark: new files, pending files, lag, snapshots."""
