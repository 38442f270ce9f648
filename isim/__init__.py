"""isim: a deterministic, process-oriented simulator of LLM inference whose every run is verified by replay."""

__version__ = "0.1.0"
