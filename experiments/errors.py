"""The one exception that users are meant to see: printed as one line, without a traceback."""


class UserError(Exception):
    """Names the thing that is wrong and the way out."""
