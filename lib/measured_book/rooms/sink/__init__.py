"""The chapter *The life of a sink*: what it claims and measures."""
