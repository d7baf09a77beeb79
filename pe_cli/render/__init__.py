"""What the terminal shows: tables, heat maps, plots."""
