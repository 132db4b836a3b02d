"""The chapter *What do dropout and label smoothing buy?*: what it claims, measures, draws and asks."""
