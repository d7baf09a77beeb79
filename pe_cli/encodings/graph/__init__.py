"""Encodings of graphs: by eigenvectors, by walks and by distance."""
