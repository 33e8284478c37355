"""Attribution methods and what they learn."""
