"""Three ways to decay weights, and whether a rate carries over in depth: what is claimed and measured."""
