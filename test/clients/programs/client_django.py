"""Django's ORM over psycopg2, with its migrations' schema editor."""

import os

import django
from django.conf import settings

from suite import ORDERS, case, equal, run, sharded

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": os.environ["PGHOST"],
            "PORT": os.environ["PGPORT"],
            "USER": os.environ["PGUSER"],
            "PASSWORD": os.environ.get("PGPASSWORD", ""),
            "NAME": os.environ["PGDATABASE"],
        }
    },
    INSTALLED_APPS=[__name__],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
django.setup()

from django.db import DatabaseError, IntegrityError, connection, models, transaction  # noqa: E402


class Author(models.Model):
    name = models.CharField(max_length=100, unique=True)

    class Meta:
        db_table = "django_authors"


class Book(models.Model):
    author = models.ForeignKey(Author, on_delete=models.CASCADE, related_name="books")
    title = models.TextField()

    class Meta:
        db_table = "django_books"


class Order(models.Model):
    user_id = models.BigIntegerField(primary_key=True)  # Django knows no keys of two columns
    id = models.BigIntegerField()
    note = models.TextField()

    class Meta:
        db_table = ORDERS or "orders"


@case
def migrate():
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS django_books, django_authors")
    with connection.schema_editor() as editor:
        editor.create_model(Author)
        editor.create_model(Book)
    pages = models.IntegerField(null=True)
    pages.set_attributes_from_name("pages")
    with connection.schema_editor() as editor:
        editor.add_field(Book, pages)
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        columns = [column.name for column in connection.introspection.get_table_description(cursor, "django_books")]
        constraints = connection.introspection.get_constraints(cursor, "django_books")
    assert {"django_authors", "django_books"} <= set(tables), tables
    equal(columns, ["id", "author_id", "title", "pages"])
    assert any(one["foreign_key"] == ("django_authors", "id") for one in constraints.values()), constraints


@case
def insert():
    anna = Author.objects.create(name="Anna")
    Book.objects.bulk_create([Book(author=anna, title="One"), Book(author=anna, title="Two")])
    Author.objects.bulk_create([Author(name=f"author {n}") for n in range(250)], batch_size=100)
    assert anna.pk
    equal(Author.objects.count(), 251)
    equal(Author.objects.get_or_create(name="Anna")[1], False)


@case
def query():
    equal(list(Book.objects.filter(author__name="Anna").order_by("title").values_list("title", flat=True)), ["One", "Two"])
    equal(Author.objects.annotate(count=models.Count("books")).get(name="Anna").count, 2)
    equal([b.title for b in Author.objects.prefetch_related("books").get(name="Anna").books.order_by("id")], ["One", "Two"])
    equal(sum(1 for _ in Author.objects.iterator(chunk_size=50)), 251)
    equal(Author.objects.filter(name="nobody").exists(), False)


@case
def transaction_():
    with transaction.atomic():
        Author.objects.create(name="kept")
        try:
            with transaction.atomic():
                Author.objects.create(name="kept")
        except IntegrityError as why:
            equal(why.__cause__.pgcode, "23505")
        Author.objects.select_for_update().get(name="kept")
        Author.objects.filter(name="kept").update(name="renamed")
    equal(Author.objects.filter(name="renamed").count(), 1)


transaction_.__name__ = "transaction"


@case
def rollback():
    with transaction.atomic():
        Author.objects.create(name="lost")
        transaction.set_rollback(True)
    equal(Author.objects.filter(name="lost").count(), 0)


@case
def error():
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM no_such_table")
    except DatabaseError as why:
        equal(why.__cause__.pgcode, "42P01")
    else:
        raise AssertionError("a table that is not there")
    Author.objects.get(name="Anna").delete()
    equal(Book.objects.count(), 0)
    with connection.schema_editor() as editor:
        editor.delete_model(Book)
        editor.delete_model(Author)


@sharded
def sharded():
    for user in range(20):
        Order.objects.create(user_id=user, id=1, note="order")
        equal(Order.objects.filter(user_id=user).update(note="changed"), 1)
        equal(Order.objects.get(user_id=user).note, "changed")
        with transaction.atomic():
            equal(Order.objects.filter(user_id=user).delete()[0], 1)


try:
    run()
finally:
    connection.close()
