"""${message}."""

from alembic import context

revision, down_revision = ${repr(up_revision)}, ${repr(down_revision)}


def upgrade() -> None:
    context.config.attributes["apply"]("00.00.00")  # the release whose files sql/schema/00.00.00_*.sql it adds
