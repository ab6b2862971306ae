"""What users note down."""

from django.conf import settings
from django.db import models


class Note(models.Model):
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notes")
    thread = models.ForeignKey("hyperkitty.Thread", on_delete=models.CASCADE)
    text = models.CharField(max_length=200)
    stars = models.IntegerField(default=3)
    seen = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["user", "stars"], name="notes_by_stars")]
