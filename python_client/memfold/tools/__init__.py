"""Programs for people: the command line, installation and maintenance, the page, review, calibration."""
