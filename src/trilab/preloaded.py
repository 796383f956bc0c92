"""What the server that starts runs has imported, for all of them."""

from trilab.imports import importing_lightning

with importing_lightning():
    import trilab.run
    import trilab.tracking  # noqa: F401
