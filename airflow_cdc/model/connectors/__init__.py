"""Connectors: what is known of each, one file a connector."""
