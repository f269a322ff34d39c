"""The vocabulary in which plug-ins describe themselves, and the finder of those installed.

A plug-in is a source, a sink or a transform. Its `Descriptor` (descriptor) says what it is called,
which options it takes (options, option_values, schema, save_modes, on the nodes of syntax_tree),
what it can do, and by which dotted name a worker makes it. Nothing here and no descriptor imports
Spark, so that job files and coordinators read the same descriptors as workers. They are found by
entry points (catalog): ours come through the same door as everybody else's.
"""

from __future__ import annotations
