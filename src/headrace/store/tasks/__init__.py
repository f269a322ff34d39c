"""Tasks and workers: which attempts run, who claimed them, and who is registered."""
