"""What a person sees: pages, figures, and the state that a link holds. Knows frames and figures, no SQL and no torch."""
