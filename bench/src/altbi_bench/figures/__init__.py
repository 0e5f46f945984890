"""The page of figures: the paper's figures, drawn from our records."""
