"""The adapters of frameworks, each against the real package."""
