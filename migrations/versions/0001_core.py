from alembic import context

revision, down_revision = "0001", None


def upgrade() -> None:
    context.config.attributes["apply"]("00.01.00")
