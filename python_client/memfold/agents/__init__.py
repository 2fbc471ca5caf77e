"""memfold for agents that use another protocol or a framework: one folder or file for each."""
