"""What an administrator does: install, run the embedded server, maintenance, a new embedding model."""
