"""The chapter *A model from your disk*: what it draws, and the comparison that it shows."""
