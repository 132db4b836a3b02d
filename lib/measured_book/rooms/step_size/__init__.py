"""The chapter *Depth: what sets the size of a step?*: what it claims, measures, draws and asks."""
