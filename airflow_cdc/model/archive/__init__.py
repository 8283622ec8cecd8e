"""What is known of archived files: surveys, offsets, transactions, cuts and intervals."""
