"""Check before the weights are loaded that a folder's tokenizer and model belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase


def check_end_token(tokenizer: PreTrainedTokenizerBase, path: str) -> None:
    """Raise UserError if nothing would end a response. `path`: model.path, as given.

    Every response would be cut off at its limit, and the data set's programs would have no end.
    """
    if tokenizer.eos_token_id is None:
        raise UserError(
            f"model.path={path}: no token ends a response; name one as eos_token in its "
            "tokenizer_config.json, or its number as eos_token_id in generation_config.json"
        )


def check_vocabulary(
    tokenizer: PreTrainedTokenizerBase, model_config: PreTrainedConfig, path: str, largest: int
) -> None:
    """Raise UserError if texts have tokens without an embedding. `largest`: of all prompts.

    A tokenizer may be smaller. Public models have added tokens beyond their embedding that no text
    has (images'), so of these only those are refused that occur: in prompts, and as end or padding.
    """
    rows = model_config.get_text_config().vocab_size
    special = {"eos_token": tokenizer.eos_token_id, "pad_token": tokenizer.pad_token_id}
    beyond = [name for name, token in special.items() if token is not None and token >= rows]
    if (size := tokenizer.vocab_size) > rows:
        found = f"its tokenizer has {size} tokens"
    elif largest >= rows:
        found = f"the prompts have tokens up to number {largest}"
    elif beyond:
        found = f"its tokenizer's {beyond[0]} is number {special[beyond[0]]}"
    else:
        return
    raise UserError(
        f"model.path={path}: {found}, and the model has embeddings for {rows} (vocab_size of "
        "config.json); give the folder the tokenizer that the model was trained with"
    )
