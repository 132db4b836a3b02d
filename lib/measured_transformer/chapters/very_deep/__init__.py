"""The chapter *How deep can it get?*: what it claims, measures, draws and asks."""
