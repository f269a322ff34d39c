"""Jobs: their specification, their state machine, and the epochs (checkpoints) they are made of."""
