"""What a user is told in words alone, without a traceback."""


class BadInput(ValueError):
    """A key, text, file or value that cannot be trained on.

    The message is shown to the user as it is, on its own and without a traceback. It says what was wrong, with the
    value, where the value came from, and what would be right.
    """


class TrainingError(Exception):
    """A training that failed for a reason that the message gives, with what would help.

    Where in the code it came to light says nothing more: the traceback is written down, not shown.
    """
