"""Enrolments: fitted, portable attributors."""
