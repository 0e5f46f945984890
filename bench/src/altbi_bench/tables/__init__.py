"""Tables of records, with the paper's numbers."""
