"""What is fast and hard to read: the same values as the plain form, computed otherwise."""
