"""Finite support and graphs: the adversary moves mass between given nodes."""
