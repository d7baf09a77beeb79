"""What `--plot` draws: one module for each kind of picture, and the table that says which encoding gets which."""
