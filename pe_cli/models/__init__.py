"""From a model's configuration to its positional encoding, with where every value came from."""
