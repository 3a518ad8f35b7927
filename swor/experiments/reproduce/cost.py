"""What things cost in seconds on one core of a common machine, to say beforehand how long they take."""

VAE_EPOCH = {"digits": 0.25, "mnist": 16.0, "binarized-mnist": 15.0}
"""An epoch of the VAE."""

VARIANCE = {"digits": 0.012, "mnist": 0.03, "binarized-mnist": 0.03}
"""A gradient of 100 images."""

TSP_STEP = 0.4
"""A step of 512 tours of 20 nodes."""
