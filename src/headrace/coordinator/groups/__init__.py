"""The leader's side of worker groups: commands, orphans, the floor, and calls to containers."""
