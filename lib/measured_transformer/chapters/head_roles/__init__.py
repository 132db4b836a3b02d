"""The chapter *Do heads specialise?*: what it claims, measures, draws and asks."""
