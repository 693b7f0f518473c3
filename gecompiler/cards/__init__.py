"""Compiling for several cards: what is asked, the schedule of all ranks, its report, and runs."""

from gecompiler.cards.request import CardsRequest, cards_request
from gecompiler.cards.schedule import CardsResult, schedule_cards

__all__ = ["CardsRequest", "CardsResult", "cards_request", "schedule_cards"]
