"""Pictures that pages draw are empty: no test here looks at one."""

from tests.pictures import empty_pictures

__all__ = ["empty_pictures"]  # a fixture
