"""Decode: from each connector's dialect to change events of one shape."""
