"""Costs that are no norm: linearised near each row, then by ascent."""
