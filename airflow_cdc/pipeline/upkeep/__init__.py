"""What keeps a lake in order, and what looks at it: maintenance, verification, inspection, schemas."""
