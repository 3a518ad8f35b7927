"""The categorical VAE: Table 1, and the training curves of the paper."""
