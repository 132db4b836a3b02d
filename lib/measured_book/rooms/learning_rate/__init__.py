"""The chapter *Which knob first?*: what it claims, measures, draws and asks."""
