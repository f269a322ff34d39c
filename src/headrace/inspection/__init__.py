"""Inspection: the health of a catalog that Headrace has never seen, and what optimizing saves.

It needs no coordinator and no store, and changes nothing. `survey` reads the catalog through Spark,
`report` makes one value of what was read (and its JSON), and `text` and `page` show that value.
"""

from __future__ import annotations
