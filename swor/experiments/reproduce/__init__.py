"""``swor reproduce``: every experiment of the paper, in steps that can be resumed, and one report."""
