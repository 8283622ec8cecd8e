"""Dialects: how each connector spells a change event, and the one shape they become."""
