"""clearhead: the whole Transformer in the open."""

__version__ = "0.1.0"
