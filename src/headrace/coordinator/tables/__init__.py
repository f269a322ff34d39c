"""The leader's side of lake tables: catalogs, evaluation, planning, commits, recovery, commands."""
