"""A Hugging Face config.json as values that know where they were written, and which keys of it were looked at."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from isim.model.spec import ModelError
from isim.record.files import open_input, reason_of
from isim.record.json_text import JsonError, decode_json, place_in

MAX_FILE_BYTES = 1 << 20
MAX_KEYS = 1000
MAX_COUNT = 10**12
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")


class ConfigError(ModelError):
    """A config.json that cannot be followed: which file, where in it, what was found and what is supported."""


class Config:
    """The text model's keys of a config.json; those of the whole file stand in where the text model has none.

    Every key that is asked for counts as looked at; `assumptions` collects what had to be taken for granted.
    """

    def __init__(self, path: str, text: str, values: dict[str, Any], outer: dict[str, Any], nest: str) -> None:
        self.path, self.values, self.outer = path, values, outer
        self.assumptions: list[str] = []
        self._text, self._nest = text, nest
        self._seen: dict[str, None] = {}

    def raw(self, *keys: str) -> Any:
        """The value at the first of these keys that is there and not null; None where there is none."""
        found = None
        for key in keys:
            self._seen[key] = None
            if found is None:
                found = self.values.get(key)
        for key in keys:
            if found is None and self.outer is not self.values:
                found = self.outer.get(key)
        return found

    def count(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least` at the first of these keys that is there. Raises ConfigError."""
        value = self.raw(*keys)
        if value is None and default is not None:
            return default
        if type(value) is float and math.isfinite(value) and value == int(value):
            value = int(value)
        if type(value) is not int or not least <= value <= MAX_COUNT:
            raise self.error(self._present(keys), value, f"a whole number of at least {least}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.raw(key)
        if value is None:
            return default
        if type(value) is not bool:
            raise self.error(key, value, "true or false")
        return value

    def block(self, key: str) -> dict[str, Any]:
        """An object, empty where there is none."""
        value = self.raw(key)
        if value is None:
            return {}
        if type(value) is not dict:
            raise self.error(key, value, "an object")
        return value

    def per_layer(self, key: str, layers: int) -> Sequence[Any] | None:
        """A list with an entry for each layer; None where there is none."""
        value = self.raw(key)
        if value is None:
            return None
        if type(value) is not list or len(value) != layers:
            found = f"a list of {len(value)}" if type(value) is list else value
            raise self.error(key, found, f"a list with an entry for each of the {layers} layers")
        return value

    def unseen(self) -> list[str]:
        """Keys of the text model that nobody asked for, in their order."""
        return [key for key in self.values if key not in self._seen]

    def assume(self, key: str, text: str) -> None:
        """Add a sentence. It names the file shortly, so that a result does not depend on where the run file lies."""
        sentence = f"{short_path(self.path)}{self.place(key).removeprefix(self.path)}: {text}"
        if sentence not in self.assumptions:
            self.assumptions.append(sentence)

    def error(self, key: str, found: Any, supported: str) -> ConfigError:
        shown = "nothing" if found is None else msgspec.json.encode(found).decode()[:80]
        return ConfigError(f"{self.place(key)}: {key}: found {shown}; supported is {supported}")

    def place(self, key: str) -> str:
        """`file:line:column` of a key, of the first of that name in the text model; the file's start without one."""
        start = 0
        if self._nest:
            nested = re.search(rf'"{self._nest}"\s*:', self._text)
            start = nested.start() if nested else 0
        pattern = re.compile(rf'"{re.escape(key)}"\s*:')
        found = pattern.search(self._text, start) or pattern.search(self._text)
        at = found.start() if found else 0
        line, column = place_in(self._text, at)
        return f"{self.path}:{line}:{column}"

    def _present(self, keys: tuple[str, ...]) -> str:
        for key in keys:
            if self.values.get(key) is not None:
                return key
        return keys[0]


def short_path(path: str) -> str:
    """A file's name; of a `config.json` with its folder, which tells models apart."""
    name = os.path.basename(path)
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return f"{folder}/{name}" if name == "config.json" and folder else name


def read_object(path: str) -> tuple[str, dict[str, Any]]:
    """The text of a JSON file and the object it holds. Raises ConfigError with the place of what is wrong."""
    name = os.path.basename(path) or "config.json"
    try:
        with open_input(path) as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: expected a Hugging Face {name}, found none: {reason_of(error)}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: expected a Hugging Face {name}, found more than {MAX_FILE_BYTES} bytes")
    try:
        text, found = decode_json(data)
    except JsonError as error:
        raise ConfigError(f"{path}:{error.line}:{error.column}: expected JSON: {error}") from None
    if type(found) is not dict:
        raise ConfigError(f"{path}:1:1: expected an object, as a Hugging Face {name} is, found something else")
    return text, found


def open_config(path: str | os.PathLike[str]) -> Config:
    """The config at `path`; a nested text model is found under its usual names."""
    file = os.fspath(path)
    text, outer = read_object(file)
    values, nest = outer, ""
    while "hidden_size" not in values:
        inner = next((key for key in NESTED if type(values.get(key)) is dict), "")
        if not inner:
            break
        values, nest = values[inner], inner
    if len(outer) + len(values) > MAX_KEYS:
        raise ConfigError(f"{file}:1:1: expected at most {MAX_KEYS} keys, found {len(outer) + len(values)}")
    return Config(file, text, values, outer, nest)
