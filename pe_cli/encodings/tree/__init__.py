"""Encodings of trees: where a node stands, and how two nodes stand to each other."""
