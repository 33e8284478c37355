"""Steps of ``python -m jobs map``: what a reader sees, one map, two domains, several readers."""
