"""Messages of protocol buffers: their wire format, and TensorProto."""
