"""Pictures of studies are empty unless a test looks at one."""

from tests.pictures import drawn, empty_pictures

__all__ = ["drawn", "empty_pictures"]  # fixtures
