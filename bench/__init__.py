"""Measurements against the aims, each beside a peer that is measured in the same run.

A bench says what is true of one machine at one moment: its result names the load it ran under,
and it fails only when it could not measure, never because a figure is low.
"""

from __future__ import annotations
