"""The chapter *The attention sink of a language model*: what it claims and measures."""
