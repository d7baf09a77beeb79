"""Files of tensors: streamed in, streamed out, whole or not at all."""

from pe_cli.formats.atomic import refuse_same_file
from pe_cli.formats.base import Sink, TensorSpec, check_memory
from pe_cli.formats.sinks import open_sink

__all__ = ["Sink", "TensorSpec", "check_memory", "open_sink", "refuse_same_file"]
