"""The Delta table: what it is, what is made of it, and the commits that it holds."""
