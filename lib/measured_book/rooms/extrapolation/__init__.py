"""The chapter *Beyond the trained length*: what it claims, measures, draws and asks."""
