"""A laboratory for causal token mixers: every one is a lower-triangular matrix, and the matrix is data."""

__version__ = "0.1.0"
