"""Which version of the protocol each worker speaks, the plug-ins that it has, and what jobs need.

Workers that are registered speak version 4, and have what came with it. Old jobs and tasks say
nothing about what they need: it came with every worker.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    version = sa.Column("protocol", sa.Integer(), nullable=False, server_default=sa.text("4"))
    op.add_column("workers", version)
    op.add_column("workers", sa.Column("plugins", sa.Text()))
    op.add_column("workers", sa.Column("plugins_digest", sa.Text()))
    op.add_column("jobs", sa.Column("needs", sa.Text()))
    op.add_column("tasks", sa.Column("needs", sa.Text()))
