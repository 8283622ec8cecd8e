"""How a microbatch is decoded: connector, keys, and the type and spelling of each column."""
