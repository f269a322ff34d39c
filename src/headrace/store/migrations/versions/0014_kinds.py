"""What the error of a table or of a resource is about, and why a resource was released or left
alone, each as a value beside the text. It used to be read from the text.

Programs that write the texts alone may not lead any more since revision 0013.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_OF_TABLE = "error_kind IN ('EVALUATION', 'OPTIMIZING')"
_OF_RESOURCE = "error_kind IN ('ENDED', 'NOT_STARTED', 'NOT_STOPPED')"
_NOTICES = (
    "notice IN ('GAVE_UP', 'GROUP_REMOVED', 'ISOLATED', 'LEFT_TO_USER', 'NOT_NEEDED', 'OPTED_OUT')"
)
# The texts as the programs before this one wrote them.
_TABLE_ERRORS = """
    UPDATE lake_tables SET error_kind =
        CASE WHEN error LIKE 'it can''t be evaluated: %' THEN 'EVALUATION' ELSE 'OPTIMIZING' END
    WHERE error IS NOT NULL
"""
_RESOURCE_ERRORS = """
    UPDATE resources SET error_kind = CASE
        WHEN error LIKE 'could not be stopped%' THEN 'NOT_STOPPED'
        WHEN step = 'STARTED' THEN 'ENDED'
        ELSE 'NOT_STARTED' END
    WHERE error IS NOT NULL
"""
_RESOURCE_NOTICES = """
    UPDATE resources SET notice = CASE
        WHEN told LIKE 'gave up%' THEN 'GAVE_UP'
        WHEN told LIKE 'it was made for the floor of its group%' THEN 'NOT_NEEDED'
        WHEN told = 'its group is removed' THEN 'GROUP_REMOVED'
        WHEN told LIKE 'its container % is no longer configured, %' THEN 'ISOLATED'
        WHEN told LIKE 'its container % leaves starting to you; %' THEN 'LEFT_TO_USER'
        ELSE 'OPTED_OUT' END
    WHERE told IS NOT NULL
"""


def upgrade() -> None:
    op.add_column("lake_tables", sa.Column("error_kind", sa.Text()))
    op.add_column("resources", sa.Column("notice", sa.Text()))
    op.add_column("resources", sa.Column("error_kind", sa.Text()))
    for back_fill in (_TABLE_ERRORS, _RESOURCE_ERRORS, _RESOURCE_NOTICES):
        op.execute(back_fill)
    with op.batch_alter_table("lake_tables") as tables:
        tables.create_check_constraint(op.f("ck_lake_tables_error_kind"), _OF_TABLE)
    with op.batch_alter_table("resources") as resources:
        resources.create_check_constraint(op.f("ck_resources_error_kind"), _OF_RESOURCE)
        resources.create_check_constraint(op.f("ck_resources_notice"), _NOTICES)
