"""Where every tensor lies: lifetimes, fitting, and what to say when it does not fit."""
