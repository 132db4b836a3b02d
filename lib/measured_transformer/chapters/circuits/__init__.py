"""The planned chapter `book/interpretability/circuits`: its claims."""
