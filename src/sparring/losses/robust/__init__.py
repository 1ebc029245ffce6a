"""Losses for noisy labels. Each is a function of p_t, the probability of the target, in a file of its own."""
