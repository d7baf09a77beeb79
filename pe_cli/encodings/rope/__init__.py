"""Rotary encodings: scalings, axes, layouts, and the float32 arithmetic of the frameworks."""
