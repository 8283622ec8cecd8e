"""Who takes part in the scenarios that merge events into one table, one file each."""
