"""Groups of workers, as the leader sees them: what is wanted, what there is, what is started."""
