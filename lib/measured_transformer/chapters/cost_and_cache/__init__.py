"""The planned chapter `book/inference/cost-and-cache`: its claims."""
