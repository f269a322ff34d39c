"""The worker's side of lake tables: list catalogs, evaluate, plan, rewrite, commit and discard."""
