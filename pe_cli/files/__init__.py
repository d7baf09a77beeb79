"""Files of tensors: streamed in, streamed out, whole or not at all; a module a format."""

from pe_cli.files.base import TensorSpec

__all__ = ["TensorSpec"]
