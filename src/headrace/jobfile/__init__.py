"""Job files: what a user writes, as SeaTunnel has it, with the place of every key and value.

    text → RawObject (hocon: LALR grammar) → Document (hocon: merged, plugins as lists)
         → variables replaced (variables) → options checked and converted (options, option_values,
         registry) → pipelines (graph) → JobSpec (reader)

What comes over the wire instead of from a file passes the same checks (wire).
"""

from __future__ import annotations
