"""memfold for agents that speak another protocol, or are built with a framework: a folder or a file each."""
