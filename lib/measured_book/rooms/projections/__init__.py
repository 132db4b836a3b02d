"""The chapter *Why three projections*: what it claims, measures, draws and asks."""
