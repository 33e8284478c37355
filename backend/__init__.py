"""The measuring half of the Provenance Atlas: everything that turns text into evidence."""

__version__ = "0.1.0"
