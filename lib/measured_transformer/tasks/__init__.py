"""Tasks: synthetic ones with an exact answer and a known best loss, number words, and real text."""
