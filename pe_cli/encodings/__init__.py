"""The mathematics, one file per kind: numpy in, numpy out; no files, no printing."""
