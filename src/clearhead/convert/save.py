"""A model of ours as another project's checkpoint."""

from typing import Any

from torch import Tensor, nn

from clearhead.convert.families import FAMILIES
from clearhead.convert.family import Family
from clearhead.errors import ConfigError

__all__ = ["as_foreign", "family_for"]


def as_foreign(model: nn.Module, config: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config.json and the tensors under which Hugging Face's library opens the model."""
    family = family_for(config)
    about = family.write(config)
    dtype = str(next(iter(model.parameters())).dtype).removeprefix("torch.")
    return {**about, "dtype": dtype}, family.tensors(model, config)


def family_for(config: Any) -> Family:
    """The first family that can express the config; where there is none, what keeps the nearest ones from it."""
    refusals = []
    for family in FAMILIES.values():
        try:
            family.write(config)
        except ConfigError as error:
            refusals.append(str(error))
        else:
            return family
    told = [reason for reason in refusals if "is not made of" not in reason] or refusals
    raise ConfigError(f"no model of Hugging Face's library is like this one: {'; '.join(told)}")
