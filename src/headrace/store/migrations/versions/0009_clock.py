"""The lease keeps what time its leader counted by, how far that was from its wall clock, and when
that was last set ahead."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("clock_ms", "offset_ms", "set_ahead_at_ms"):
        none = sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0"))
        op.add_column("leases", none)
