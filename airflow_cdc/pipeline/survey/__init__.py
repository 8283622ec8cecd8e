"""What new files hold: topics, shapes, counts, holes, transactions and schema changes."""
