"""Figures as pure functions: a data frame and a theme in, a Plotly figure out."""
