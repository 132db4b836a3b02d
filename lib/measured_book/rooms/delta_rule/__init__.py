"""The delta rule as a layer, in the chapter *The cost of attention*: what it claims and measures."""
