"""The chapter *Mixtures of experts*: what it claims, measures, draws and asks."""
