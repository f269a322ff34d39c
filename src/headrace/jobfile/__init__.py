"""What a user writes: job files as SeaTunnel has them, with the place of every key and value.

text → grammar (lark) → document (merged, plugins as lists) → variables → options → graph → JobSpec
"""

from __future__ import annotations
