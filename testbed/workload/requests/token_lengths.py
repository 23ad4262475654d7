"""The number of tokens of prompts and answers: fixed, or lognormal as in the traces that Azure published in 2023.

Source: Azure/AzurePublicDataset, data/AzureLLMInferenceTrace_code.csv (8,819 requests) and
AzureLLMInferenceTrace_conv.csv (19,366 requests), of Patel et al., "Splitwise", ISCA 2024; licence CC-BY. A lognormal
distribution has two parameters. They are taken from the median and the mean, so that the offered load (the mean) and
the typical request (the median) are those of the trace, and the tails are what follows:

| | median, mean of trace and fit | p90 trace, fit | p99 trace, fit |
|---|---|---|---|
| code, prompt | 1,469, 2,048 | 5,194, 4,175 | 7,436, 9,780 |
| code, answer | 13, 28 | 55, 64 | 252, 232 |
| conversation, prompt | 1,020, 1,155 | 2,735, 1,932 | 4,142, 3,253 |
| conversation, answer | 129, 211 | 424, 460 | 601, 1,297 |

Where the shape of a tail matters, use the trace itself: the prompts of both are cut by the models' context, and the
answers of the conversation by a limit.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from testbed.base.errors import WorkloadError
from testbed.workload.draws import draw_below, draw_lognormal
from testbed.workload.parameters import Parameter, ParameterType, whole

MOST_TOKENS = 131_072
"""No prompt and no answer is longer: the context of today's models."""


class TokenLengths(StrEnum):
    FIXED = "fixed"
    """All are alike."""
    AZURE_CODE = "azure-code"
    """Drawn like those of the Azure trace of 2023 for code completion."""
    AZURE_CONVERSATION = "azure-conversation"
    """Drawn like those of the Azure trace of 2023 for conversations."""
    TRACE = "trace"
    """Lengths are those of a file."""


def prompt_lengths(shortest: int, longest: int) -> Parameter:
    """Return the parameter of prompts whose lengths are drawn evenly, by default between these."""
    return Parameter(
        name="prompt_tokens",
        type=ParameterType.LIST,
        description="Lists the shortest and the longest prompt, in tokens.",
        default=(shortest, longest),
        low=2,
        high=2,
        item=whole("tokens", None, "Counts tokens."),
    )


def draw_between(rng: random.Random, tokens: Sequence[int]) -> int:
    """Draw the length of a prompt evenly between the shortest and the longest."""
    shortest, longest = tokens
    if shortest > longest:
        raise WorkloadError("prompt_tokens are the shortest and the longest prompt", field="prompt_tokens")
    return shortest + draw_below(rng, longest - shortest + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """A lognormal distribution of a number of tokens, by its median and its mean."""

    median: float
    mean: float

    def draw(self, rng: random.Random) -> int:
        """Return a number of tokens from 1 to `MOST_TOKENS`."""
        return min(MOST_TOKENS, max(1, round(draw_lognormal(rng, median=self.median, mean=self.mean))))


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPreset:
    """The distributions of prompts and answers; both are drawn independently of each other."""

    prompt: Lognormal
    output: Lognormal


LENGTH_PRESETS: Mapping[str, LengthPreset] = MappingProxyType(
    {
        TokenLengths.AZURE_CODE.value: LengthPreset(
            prompt=Lognormal(median=1469, mean=2048), output=Lognormal(median=13, mean=28)
        ),
        TokenLengths.AZURE_CONVERSATION.value: LengthPreset(
            prompt=Lognormal(median=1020, mean=1155), output=Lognormal(median=129, mean=211)
        ),
    }
)
"""By the name that a scenario gives them."""
