"""``swor explore``: a page that shows what sampling without replacement does, to play with."""
