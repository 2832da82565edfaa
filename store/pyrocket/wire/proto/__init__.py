"""The .proto files, and their compiled descriptors."""
