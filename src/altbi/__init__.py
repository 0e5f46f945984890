"""Find the odd rows."""
