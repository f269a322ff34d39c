"""A restore puts the epoch of a pipeline above ids that were used; what was completed is kept.

A program before this one restores without it, and then only marks above all ids are told from
those that the store knows (E7).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pipelines", sa.Column("completed_epoch", sa.Integer()))
