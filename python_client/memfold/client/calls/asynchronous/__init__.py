"""The async client."""
