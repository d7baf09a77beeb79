"""Files of tensors: streamed in, streamed out, whole or not at all."""

from pe_cli.files.base import Sink, TensorSpec, check_memory
from pe_cli.files.sinks import open_sink

__all__ = ["Sink", "TensorSpec", "check_memory", "open_sink"]
