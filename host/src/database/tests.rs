//! What the three databases have in common, on a real one.
