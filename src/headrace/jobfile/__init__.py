"""Job files: what a user writes, as SeaTunnel has it, with the place of every key and value.

    text → Document, with plugins as lists (hocon: an LALR grammar, also for JSON; yaml_document;
         sql_document) → variables replaced (variables) → options checked and converted (env,
         registry, by plugins.options) → pipelines (graph) → JobSpec (reader)

Every step adds what is wrong to one `Problems`, so that all of it is told at once. What comes over
the wire instead of from a file passes the same checks (spec_checks).
"""

from __future__ import annotations
