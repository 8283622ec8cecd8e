"""What a flow keeps beside its target: quarantine, delete markers and logs of events."""
