"""One file per command: parse, call, render; no mathematics."""
