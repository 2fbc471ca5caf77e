"""``python -m memfold``, and the script ``memfold``: the command line, if it is installed."""

from __future__ import annotations

from memfold.client._extras import needs
from memfold.client.errors import MissingExtraError


def main() -> None:
    """Run the command line, or say how to install it."""
    try:
        with needs("cli"):
            from memfold.tools.cli import main as command
    except MissingExtraError as error:
        raise SystemExit(f"Error: {error}") from None
    command()


if __name__ == "__main__":
    main()
