"""The chapter *Encoder and decoder*: what it claims, measures, draws and asks."""
