"""Counts the tokens of a turn and what they cost, where the provider tells.

The price comes from the library that the model client uses; a model that it does not know has no price here, which is
another thing than a price of zero.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic_ai.messages import ModelResponse

from metier.surfaces.chat.items import Item, TextItem


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens sent and received, and their price in dollars. `priced` says whether all of them have a price."""

    input: int = 0
    output: int = 0
    cost: Decimal = Decimal()
    priced: bool = True

    def __add__(self, other: "Spent") -> "Spent":
        if not other.tokens:
            return self
        if not self.tokens:
            return other
        return Spent(
            self.input + other.input, self.output + other.output, self.cost + other.cost, self.priced and other.priced
        )

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def as_dict(self) -> dict[str, object] | None:
        """The data that an item keeps, or `None` if the provider told nothing."""
        if not self.tokens:
            return None
        return {"input": self.input, "output": self.output, "cost": str(self.cost) if self.priced else None}

    @property
    def words(self) -> str:
        """For people: the tokens, and the price if it is known."""
        if not self.tokens:
            return ""
        shown = f"{self.tokens:,} tokens"
        if self.priced:
            shown += f" · ${self.cost:.2f}" if self.cost >= Decimal("0.01") else f" · ${self.cost:.4f}"
        return shown


def spent_on(response: ModelResponse) -> Spent:
    """What one answer of a model took."""
    used = response.usage
    if not (used.input_tokens or used.output_tokens):
        return Spent()
    try:
        price = response.cost().total_price
    except (LookupError, ValueError, AssertionError):
        return Spent(used.input_tokens, used.output_tokens, priced=False)
    return Spent(used.input_tokens, used.output_tokens, price)


def from_item(value: Mapping[str, Any] | None) -> Spent:
    """What an item keeps."""
    if not value:
        return Spent()
    cost = value["cost"]
    return Spent(value["input"], value["output"], Decimal(cost or 0), cost is not None)


def of_chat(kept: Iterable[Item]) -> Spent:
    """What all answers of a chat took, also those that were replaced by another one."""
    total = Spent()
    for item in kept:
        if isinstance(item, TextItem):
            total += from_item(item.spent)
    return total
