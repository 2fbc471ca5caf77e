"""Hostile input for every public function that the catalog holds, and the judge of what comes back.

A call is drawn from a function's signature: each argument is left out, valid, or hostile, by its type and its name.
Valid ones build up state, so that hostile ones meet it. Values are parameters of their type: what PostgreSQL's own
input functions refuse names the parameter in its context, and never reaches memfold.

The whole, on a database that holds memfold, a process a database:

    python -m tests.fuzzing DSN CALLS SEED
"""
