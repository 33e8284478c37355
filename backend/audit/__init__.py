"""Evidence about unlabelled traces that an auditor can defend."""
