"""What a database's catalogue tells of a table, and what a connector with given settings makes of it: Connect fields."""
