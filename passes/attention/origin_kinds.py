"""What a value leads back to, in rising order of what it says of a softmax."""

from __future__ import annotations

NOTHING = 0
"""No product."""

PROJECTION = 1
"""A product with a stored matrix."""

DISTANT = 2
"""A product of two activations behind an op that no attention has.

A softmax of it is a site all the same, which is refused there by name.
"""

PRODUCT = 3
"""A product of two activations."""
