"""A small app as a project adds its own: notes of users on threads."""
