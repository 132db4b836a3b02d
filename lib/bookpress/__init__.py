"""What prints the book: execution, staleness, and the Sphinx extension."""
