"""Random numbers that are functions of their place, and a logarithm, an exponential and a quantile of our own."""
