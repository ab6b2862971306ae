"""What a table gets later: columns, with a default and without, a longer one, an index, and values for the rows that it has."""

from django.db import migrations, models


def give_stars(apps, schema_editor):
    """One statement for all rows, as a migration of data has it."""
    apps.get_model("notes", "Note").objects.filter(text__startswith="a").update(stars=5)


class Migration(migrations.Migration):
    dependencies = [("notes", "0001_initial")]
    operations = [
        migrations.AddField("note", "stars", models.IntegerField(default=3)),
        migrations.AddField("note", "seen", models.DateTimeField(null=True)),
        migrations.AlterField("note", "text", models.CharField(max_length=200)),
        migrations.AddIndex("note", models.Index(fields=["user", "stars"], name="notes_by_stars")),
        migrations.RunPython(give_stars, migrations.RunPython.noop),
    ]
