"""The softmax model at order 1: cross-entropy and the largest dual norm over pairs of classes."""

from .newton import MultinomialNewton as MultinomialNewton
from .newton import pair_threshold as pair_threshold
