"""What ``pip install memfold`` needs: the clients, judging, embedding, errors. Imports nothing of the other folders."""
