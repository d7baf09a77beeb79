"""The version, also of the wheel."""

__version__ = "0.2.0.dev0"
