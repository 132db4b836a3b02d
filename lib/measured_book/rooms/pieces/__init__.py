"""The chapter *Which pieces can be left out?*: what it claims, measures, draws and asks."""
