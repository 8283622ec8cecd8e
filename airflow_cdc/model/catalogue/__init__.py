"""A table's columns in a database's catalogue, and the Connect fields that a connector with given settings makes of them."""
