"""The lens: observe values inside unmodified JAX programs."""
