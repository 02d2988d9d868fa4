"""The ways to call the product: command line, server, agents' tools."""
