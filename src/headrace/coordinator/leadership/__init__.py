"""Leader election by a lease in the store, the leader's clock, and what runs during one term."""
