"""Model-signature geometry: where sources lie to one another when no readout is trained."""
