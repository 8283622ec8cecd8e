"""One attempt at one microbatch, and what it hands to its steps."""
