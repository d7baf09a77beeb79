"""Exact kernels, element types, float32 arithmetic, random numbers and statistics: numpy in, numpy out."""
