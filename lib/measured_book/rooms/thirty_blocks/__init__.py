"""The chapter *Thirty blocks*: what it claims and measures."""
