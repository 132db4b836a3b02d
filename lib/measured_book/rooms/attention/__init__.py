"""The chapter *Attention*: what it claims, measures, draws and asks."""
