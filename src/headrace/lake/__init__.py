"""How lake tables are read, planned, rewritten and committed to, one package a format."""
