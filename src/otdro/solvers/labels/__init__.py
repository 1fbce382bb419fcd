"""Labels that may be changed at a price, for losses of one score."""

from .method import PricedLabels as PricedLabels
