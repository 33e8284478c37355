"""What the paper compares its reader to, one method a module (paper, Dynamic Baselines and Static Baselines)."""
