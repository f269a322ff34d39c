"""Files on a file system as a target: staged, listed in a manifest, renamed. See commit.py."""

from __future__ import annotations
