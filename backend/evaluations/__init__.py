"""One experiment of the paper a module: arrays in, tidy frames out."""
