"""Rows of a database's catalogue become the columns that its connector writes."""
