# Made by tools/gen_blocking.py from ../asynchronous/__init__.py: change that file, not this one.
"""The blocking client."""
