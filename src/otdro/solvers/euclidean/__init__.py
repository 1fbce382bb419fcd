"""Euclidean costs: closed form from one spectrum, Newton, Newton jointly in the multiplier."""
