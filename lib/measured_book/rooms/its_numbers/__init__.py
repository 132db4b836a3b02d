"""The chapter *Its numbers*: what it claims and measures."""
