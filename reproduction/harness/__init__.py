"""The machinery that the experiments share: from settings to a folder with metrics and checkpoints."""
