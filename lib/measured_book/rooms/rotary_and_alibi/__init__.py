"""The chapter *Relative position*: what it claims, measures, draws and asks."""
