"""The chapter *Repeats and rules*: what it claims and measures."""
