"""memfold's decisions and state once more, small and slow: what tests/adversarial/test_stateful.py compares the SQL with.

Written from the design, not from the SQL. ``World`` keeps its own ledger; ``derive`` computes all state as a
pure function of it, computed again each time. Memories, events and judgements are numbered from 0 in the order in which
they came, which is also the order of their ids in the database.
"""
