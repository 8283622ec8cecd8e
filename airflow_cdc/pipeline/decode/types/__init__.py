"""How values are spelled as JSON, and which Spark type holds them."""
