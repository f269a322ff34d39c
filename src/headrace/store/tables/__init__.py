"""Lake tables: their catalogs, when they are due, and the processes that rewrite them."""
