"""What things cost in seconds on one core of a common machine, to say beforehand how long they take."""

VAE_EPOCH = {"digits": 0.25, "mnist": 16.0, "binarized-mnist": 15.0}
"""An epoch of the VAE."""

TIMES = {"arsm": 6.0}
"""How much longer an epoch takes with an estimator that evaluates the cost very often."""

VARIANCE = {"digits": 0.02, "mnist": 0.03, "binarized-mnist": 0.03}
"""A gradient of 100 images."""

TSP_STEP = 0.4
"""A step of 512 tours of 20 nodes."""
