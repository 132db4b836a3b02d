"""The training loop and the choice of its learning rate."""
