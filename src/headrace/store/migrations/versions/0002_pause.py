"""Tasks keep how long they pause, so that a leader whose clock is behind need not wait for it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    zero = sa.Column("pause_ms", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
    op.add_column("tasks", zero)
