"""The effects of one microbatch, in their one order."""
