"""How each kind of table takes a microbatch: the same steps, one file a kind."""
