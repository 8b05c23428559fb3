"""BlipMQ: queues with QoS 0 and 1 in small binary frames; version 1 polls for messages, version 2 is sent them."""
