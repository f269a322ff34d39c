"""A toy table service, which counts the rows of a table: all that a service consists of.

`messages` is what would stand in protocol/, `counts` in coordinator/tables/ and `counting_run` in
worker/tables/. The product knows nothing of it, but for one entry in each registry.
"""
