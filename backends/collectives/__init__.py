"""Collectives between cards: their algorithms as step schedules, and what they cost."""

from gecompiler.backends.collectives.algorithms import ALGORITHMS
from gecompiler.backends.collectives.cost import (
    AUTO,
    CHOICES,
    Cost,
    all_costs,
    collective_cost,
    plan_of,
)
from gecompiler.backends.collectives.steps import Group, Plan, Transfer

__all__ = [
    "ALGORITHMS",
    "AUTO",
    "CHOICES",
    "Cost",
    "Group",
    "Plan",
    "Transfer",
    "all_costs",
    "collective_cost",
    "plan_of",
]
