"""Parts wired by a Config into models."""
