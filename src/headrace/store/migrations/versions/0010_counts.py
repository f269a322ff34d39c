"""How many rows were read, by source: of each epoch, and of each pipeline in all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("epochs", sa.Column("read", sa.JSON()))
    op.add_column(
        "pipelines", sa.Column("read", sa.JSON(), nullable=False, server_default=sa.text("'{}'"))
    )
