"""The chapter *Why warm up?*: what it claims, measures, draws and asks."""
