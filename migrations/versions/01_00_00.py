from alembic import context

revision, down_revision = "1.0.0", None


def upgrade() -> None:
    context.config.attributes["apply"]("01.00.00")
