"""Rotary positions on some pairs or in some blocks, in the chapter on rotary positions: claims and measures."""
