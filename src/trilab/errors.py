"""The one exception that means: what the user gave cannot work."""


class BadInput(ValueError):
    """A key, text, file or value that cannot be trained on.

    The message is shown to the user as it is, on its own and without a traceback. It says what was wrong, with the
    value, where the value came from, and what would be right.
    """
