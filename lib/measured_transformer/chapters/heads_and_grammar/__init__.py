"""The chapter *Do heads find the grammar?*: what it claims, measures, draws and asks."""
