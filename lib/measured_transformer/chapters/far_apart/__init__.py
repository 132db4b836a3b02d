"""The chapter *Far apart*: what it claims, measures, draws and asks."""
