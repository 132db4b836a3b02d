"""The chapter *Attention at inference*: what it claims, measures, draws and asks."""
