"""The clients, judging, embedding and errors: all that ``pip install memfold`` needs. Imports nothing from other folders."""
