"""Answers from a lake that need no Spark: the state's documents, and tables read by delta-rs in this process."""
