"""Tries to cross from one tenant to another, by everything that the catalog lists; says what came through.

Two tenants, alder and birch, hold some of everything, with a word of their own in every text. A session that acts for alder
must not meet birch's word, nor an id of birch's, in anything that comes back: rows, notices, errors. What is asked for
in the same way and does not exist at all (cedar) must be answered in the same way. Each probe returns what is wrong,
so that tests can take a policy away and see that it is missed.
"""
