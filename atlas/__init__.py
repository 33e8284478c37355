"""What a person sees: pages, figures, and the state that a link holds. It knows frames, no SQL and no torch."""
