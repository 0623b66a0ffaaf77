"""No picture that these tests make is looked at."""

from tests.pictures import empty_pictures

__all__ = ["empty_pictures"]
