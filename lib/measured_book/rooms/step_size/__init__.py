"""The chapter *Depth: who sets the size of a step?*: what it claims, measures, draws and asks."""
