"""Administration: installation, the embedded server, maintenance, a new embedding model."""
