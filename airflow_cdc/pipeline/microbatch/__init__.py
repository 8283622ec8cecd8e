"""One attempt at one microbatch, and its inputs for the steps."""
