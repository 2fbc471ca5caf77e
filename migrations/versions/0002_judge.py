from alembic import context

revision, down_revision = "0002", "0001"


def upgrade() -> None:
    context.config.attributes["apply"]("00.02.00")
