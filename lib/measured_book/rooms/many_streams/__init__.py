"""Several residual streams in a small language model: what is claimed and measured."""
