"""The chapter *Are small steps why depth works?*: what it claims, measures, draws and asks."""
