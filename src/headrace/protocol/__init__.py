"""The protocol: messages between coordinators and workers. Their fields are a wire format."""
