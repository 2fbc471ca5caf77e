"""The version of this package, of the extension and of memfold_py: one number."""

__version__ = "1.0.0"
