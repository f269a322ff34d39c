"""The store: the database that remembers all state, and the only place that builds SQL."""
