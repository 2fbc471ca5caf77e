"""Servers that are killed, clients that record what they sent, and the checks afterwards."""
