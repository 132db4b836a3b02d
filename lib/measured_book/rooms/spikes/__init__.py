"""The chapter *Why does the loss leap?*: what it claims and measures."""
