"""`generation_config.json`: how a model generates unless the user says otherwise.

Where a directory has none, the keys for generation in its `config.json` count, as in transformers.
Source: transformers 5, `generation/configuration_utils.py`.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import OptionError, UserError, listed, require_at_least
from bert_jax.files import check_undamaged, is_there, read_json_object
from bert_jax.files.paths import DESCRIPTION
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import WMT, SearchOptions
from bert_jax.options import keys_of

FILE = "generation_config.json"
"""Written where it was read; other models have the keys in their `config.json`."""

# What transformers samples from where the file says `do_sample` and no more.
_SAMPLING = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}

# Keys that are options of the same name.
_OPTIONS = tuple(keys_of(SearchOptions, omit=("penalty", "temperature")))
# Keys that are rules, with the name of the rule; those of other names can be a number or a list.
_OTHER_NAMES = {
    "bad_token_ids": "bad_words_ids",
    "eos_token_ids": "eos_token_id",
    "forced_eos_token_ids": "forced_eos_token_id",
}
_RULES = {_OTHER_NAMES.get(rule, rule): rule for rule in keys_of(TokenRules, omit=("vocab_size",))}
WMT_PENALTY = "wmt_length_penalty"
"""Our own key: α of wmt's penalty. transformers, which does not have it, uses its own penalty."""

_START = ("bos_token_id", "decoder_start_token_id")
_LENGTH_AND_SAMPLING = ("max_length", "do_sample", "temperature")

# Keys that change what is generated, with the value that does not; others are refused.
_UNSUPPORTED = {
    "constraints": None,
    "diversity_penalty": 0,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "guidance_scale": 1,
    "max_time": None,
    "min_p": 0,
    "num_beam_groups": 1,
    "penalty_alpha": 0,
    "sequence_bias": None,
    "stop_strings": None,
    "token_healing": False,
    "top_h": None,
    "typical_p": 1,
    "watermarking_config": None,
}
# Keys without effect on what is generated: caches, outputs, compilation, speculative decoding.
_WITHOUT_EFFECT = (
    "_commit_hash",
    "_from_model_config",
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_ensemble_weight",
    "assistant_lookbehind",
    "cache_config",
    "cache_implementation",
    "compile_config",
    "continuous_batching_config",
    "disable_compile",
    "is_assistant",
    "low_memory",
    "max_cache_len",
    "max_matching_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "remove_invalid_values",
    "return_dict_in_generate",
    "speculation_type",
    "target_lookbehind",
    "transformers_version",
    "use_cache",
    "use_mtp",
)
# In the `config.json` of old files.
_OLD_FORCED_BOS = "force_bos_token_to_be_generated"
_WITH_EFFECT = {
    *(*_OPTIONS, WMT_PENALTY, *_RULES, *_START, *_LENGTH_AND_SAMPLING, *_UNSUPPORTED),
}


@dataclasses.dataclass(frozen=True)
class GenerationDefaults:
    """What the files of a model say about generation.

    Attributes:
        path: the file that says it.
        fields: its keys: all of `generation_config.json`, or those with an effect of `config.json`.
        rules: rules for tokens, without `vocab_size`, which the tokenizer knows.
        bos_token_id: first token of a text; None: the file does not say.
        decoder_start_token_id: first token of the decoder of an encoder-decoder; by default the
            first of a text.
    """

    path: Path
    fields: Mapping[str, Any]
    rules: TokenRules
    bos_token_id: int | None = None
    decoder_start_token_id: int | None = None

    @property
    def effective_fields(self) -> dict[str, Any]:
        """The fields that are set and change what is generated."""
        return {key: value for key, value in _set(self.fields).items() if key in _WITH_EFFECT}

    def check_vocabulary(self, size: int) -> None:
        """Checks that a model has the tokens.

        Args:
            size: V, the number of tokens of the model.

        Raises:
            OptionError: it lacks one.
        """
        try:
            self.rules.check_vocabulary(size)
            for key in _START:
                require_at_least(key, getattr(self, key), 0, size - 1)
        except OptionError as error:
            raise _in_file(error, self.path) from error

    def options(
        self, prompt_length: int | None, chosen: Mapping[str, Any], positions: int | None = None
    ) -> SearchOptions:
        """The options that a user has chosen; the others are the file's.

        Without sampling, top-k and top-p of the file have no effect.

        Args:
            prompt_length: number of tokens of the decoder's prompt, which `max_length` includes;
                None: prompts differ.
            chosen: fields of `SearchOptions`.
            positions: number of positions of the decoder; None: it has no limit.

        Raises:
            OptionError: an option is wrong, or excluded by another one; there are too few positions
                for the new tokens.
        """
        fields = _set(self.fields)
        values = {key: fields[key] for key in _OPTIONS if key in fields}
        if WMT_PENALTY in fields and chosen.get("penalty", WMT) == WMT:
            values |= {"penalty": WMT, "length_penalty": fields[WMT_PENALTY]}
            values.pop("early_stopping", None)
        if "max_new_tokens" not in {*values, *chosen}:
            values["max_new_tokens"] = self._max_new_tokens(prompt_length, positions)
        if fields.get("do_sample"):
            values = _SAMPLING | {"temperature": fields.get("temperature", 1.0)} | values
        if not chosen.get("temperature", values.get("temperature")):
            values = {key: values[key] for key in values if key not in _SAMPLING}
        try:
            options = SearchOptions(**{**values, **chosen})
            if positions is not None:
                most = positions - (prompt_length or 1)
                require_at_least("max_new_tokens", options.max_new_tokens, 1, most)
            return options
        except OptionError as error:
            if error.key in chosen:
                raise
            raise error.at(self.path) from error

    def _max_new_tokens(self, prompt_length: int | None, positions: int | None) -> int:
        """The maximum number of new tokens where none is set; for arguments see `options`.

        It is what `max_length` leaves, else the usual number or, if fewer, what fits in: after
        prompts that differ, half the positions.
        """
        length = _set(self.fields).get("max_length")
        if length is None:
            most = SearchOptions.max_new_tokens
            if positions is None:
                return most
            return min(most, positions // 2 if prompt_length is None else positions - prompt_length)
        if prompt_length is None:
            rule = "it counts the tokens of a prompt, too, and prompts differ"
        elif length <= prompt_length:
            rule = f"the prompt has {prompt_length} tokens"
        elif positions is not None and length > positions:
            rule = f"the model has {positions} positions"
        else:
            return int(length) - prompt_length
        raise OptionError("max_length", length, f"{rule}: set {{max_new_tokens}}").at(self.path)


def read_generation_config(directory: Path, config_fields: Mapping[str, Any]) -> GenerationDefaults:
    """Reads what a model directory says about generation.

    Args:
        directory: the model directory.
        config_fields: fields of its `config.json`, which count if it has no
            `generation_config.json`.

    Raises:
        UserError: the file is damaged, or has a key that is unknown or not supported.
        OptionError: a value is wrong.
    """
    path = directory / FILE
    check_undamaged(directory, [FILE])
    if is_there(path):
        fields = read_json_object(path)
        unknown = sorted(set(fields) - _WITH_EFFECT - set(_WITHOUT_EFFECT))
        if unknown:
            raise UserError(
                f"{path}: {listed(unknown)} would have no effect; remove it, or correct its name"
            )
    else:
        path = directory / DESCRIPTION
        fields = {key: value for key, value in config_fields.items() if key in _WITH_EFFECT}
        if config_fields.get(_OLD_FORCED_BOS):
            fields["forced_bos_token_id"] = fields.get("bos_token_id")
    return generation_defaults(path, fields)


def generation_config_bytes(defaults: GenerationDefaults) -> bytes:
    """The content of a `generation_config.json` with the keys and values that were read."""
    return (json.dumps(defaults.fields, indent=2) + "\n").encode()


def fields_with(fields: Mapping[str, Any], options: SearchOptions) -> dict[str, Any]:
    """Fields of a file with other options of a search, from which a model searches by default.

    All are explicit; what the file says of samples remains where none are drawn.
    """
    written = {key: getattr(options, key) for key in _OPTIONS}
    if options.penalty == WMT:
        written[WMT_PENALTY] = written.pop("length_penalty")
    written["do_sample"] = options.temperature > 0
    if options.temperature:
        written["temperature"] = options.temperature
    else:
        written = {key: written[key] for key in written if key not in _SAMPLING}
    replaced = ("length_penalty", WMT_PENALTY, "max_length")
    return {key: fields[key] for key in fields if key not in replaced} | written


def generation_defaults(path: Path, fields: Mapping[str, Any]) -> GenerationDefaults:
    """What the fields of a file say about generation; for errors see `read_generation_config`."""
    known = _set(fields)
    for key, neutral in _UNSUPPORTED.items():
        if known.get(key, neutral) != neutral:
            remedy = "remove it" if neutral is None else f"only {neutral} is supported"
            raise UserError(
                f"{path}: {key} is {known[key]!r:.80}, which is not supported; {remedy}"
            )
    try:
        for key in (*_START, "max_length"):
            require_at_least(key, known.get(key), 0)
        if not isinstance(known.get("do_sample", False), bool):
            raise OptionError("do_sample", known["do_sample"], "it must be true or false")
        if known.get("do_sample") and known.get("temperature") == 0:
            raise OptionError("temperature", 0, "with do_sample it must be above 0")
        return GenerationDefaults(
            path,
            fields,
            _rules(known),
            known.get("bos_token_id"),
            known.get("decoder_start_token_id", known.get("bos_token_id")),
        )
    except OptionError as error:
        raise _in_file(error, path) from error


def _in_file(error: OptionError, path: Path) -> OptionError:
    """The error with the key of the file instead of the name of a rule."""
    keys = {name: key for key, name in _RULES.items()}
    return error.renamed(lambda name: keys.get(name, name)).at(path)


def _rules(fields: Mapping[str, Any]) -> TokenRules:
    """The rules that a file gives."""
    values = {name: fields[key] for key, name in _RULES.items() if key in fields}
    if "bad_token_ids" in values:
        values["bad_token_ids"] = _single_tokens(values["bad_token_ids"])
    for field in dataclasses.fields(TokenRules):
        if isinstance(field.default, tuple) and field.name in values:
            value = values[field.name]
            values[field.name] = tuple(value) if isinstance(value, list) else (value,)
    if values.get("eos_token_ids"):
        values.setdefault("pad_token_id", values["eos_token_ids"][0])
    return TokenRules(**values)


def _single_tokens(words: Any) -> list[Any]:
    """The tokens of bad words; an OptionError if one has several."""
    if not isinstance(words, list) or not all(isinstance(ids, list) for ids in words):
        raise OptionError("bad_token_ids", words, "it must be a list of lists")
    for ids in words:
        if len(ids) != 1:
            raise OptionError("bad_token_ids", ids, "only words of one token are supported")
    return [ids[0] for ids in words]


def _set(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are set; null means that a file says nothing."""
    return {key: value for key, value in fields.items() if value is not None}
