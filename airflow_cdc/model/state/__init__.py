"""The state in the lake: surveys, and each flow's intents, commit markers, checkpoint and lease."""
