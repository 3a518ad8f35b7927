"""The command ``reproduce``: run every experiment of the paper in resumable steps, and write one report."""
