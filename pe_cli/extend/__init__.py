"""Checkpoint surgery: find position tables, plan their change, rewrite the file around them, report."""
