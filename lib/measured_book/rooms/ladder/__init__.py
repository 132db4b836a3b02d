"""The chapter *How long is long enough?*: what it claims and measures."""
