"""One file per table mode: how it applies a microbatch. All have the same steps."""
