"""A look at a whole catalog that Headrace has never seen: its health, and what optimizing saves.

Needs no coordinator and no store, and changes nothing. `look` reads the catalog through
Spark, `build` makes one value of what it found (`report`), and `text`, `as_json` and `page` show
that value.
"""

from __future__ import annotations
