"""One page a module: its layout, its callbacks, and what its figures say of themselves."""
