"""The planned chapter `book/interpretability/attribution`: its claims."""
