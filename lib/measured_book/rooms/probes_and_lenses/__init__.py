"""The chapter *Probes and lenses*: what it claims, measures, draws and asks."""
