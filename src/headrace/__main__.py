"""`python -m headrace`: the same as the command `headrace`, for this very Python."""

from __future__ import annotations

from headrace.cli.main import main

main()
