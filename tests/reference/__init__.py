"""The NumPy oracle of docs/numerics.md: dumb, a file per operator, imports no package code."""
