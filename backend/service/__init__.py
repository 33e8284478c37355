"""The attribution service behind page and API."""
