"""Attribution of unlabelled traces."""
