"""memfold for agents that speak another protocol, or are built with a framework: one folder each."""
