"""The travelling salesman: the Attention Model, trained by the estimators of Figure 3."""
