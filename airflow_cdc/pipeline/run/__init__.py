"""One run over an archive: survey, then every flow with its lease, checks and microbatches."""
