"""The planned chapter `book/interpretability/probes-and-lenses`: its claims."""
