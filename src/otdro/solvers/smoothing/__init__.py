"""The smoothed dual: stochastic, by quadrature, and Sinkhorn balls."""
