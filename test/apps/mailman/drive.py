"""Uses the application, a phase at a time, and prints what it is told, for whoever compares two databases.

    python3 drive.py load | use | grow | note | notes

A line that begins with == begins the account of one thing that was tried. What the database refused meanwhile (SQLSTATE 0A000) is in
lines that begin with refused, whether the application gives up or goes on. Ids are not printed: shards count apart. The clock is the
program's own, so that two runs are alike.
"""

import html
import itertools
import mailbox
import os
import re
import sys
import tempfile
from datetime import datetime, timedelta, timezone
from email.message import EmailMessage
from email.utils import format_datetime

import django
import django.utils.timezone

BEGINNING = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)


class Clock:
    """A day goes by for each phase and a minute for each thing that is tried; all calls tell different times."""

    def __init__(self, day):
        self.began = BEGINNING + timedelta(days=day)
        self.minutes = 0
        self.calls = itertools.count()

    def now(self):
        return self.began + timedelta(minutes=self.minutes, microseconds=next(self.calls))

    def go_on(self):
        self.minutes += 1
        self.calls = itertools.count()


PHASES = ["load", "use", "grow", "note", "notes"]
clock = Clock(7 + PHASES.index(sys.argv[1]))
django.utils.timezone.now = clock.now  # before anybody imports it
django.setup()

from django.contrib.admin.models import LogEntry  # noqa: E402
from django.contrib.auth.models import Group, Permission, User  # noqa: E402
from django.core.files.uploadedfile import SimpleUploadedFile  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, NotSupportedError, connection, transaction  # noqa: E402
from django.db.migrations.loader import MigrationLoader  # noqa: E402
from django.db.models import Count, F  # noqa: E402
from django.test import Client  # noqa: E402
from django_q.brokers import get_broker  # noqa: E402
from django_q.signing import SignedPackage  # noqa: E402

from allauth.account.models import EmailAddress  # noqa: E402
from hyperkitty.models import Email, Favorite, LastView, MailingList, Tag, Tagging, Thread, Vote  # noqa: E402

LISTS = ["announce@example.com", "users@example.com"]
NEW_LIST = "new@example.com"
USERS = 200
THREADS = 12  # in each list, of which each has one reply more than the one before, so that their order is clear
PASSWORD = "correct horse 1"


def say(*words):
    print(*words, flush=True)


refusals = {}  # by statement


def note_refusals(execute, sql, *rest):
    """Notes what the database refuses: the application catches some of it."""
    try:
        return execute(sql, *rest)
    except NotSupportedError as why:
        refusals[sql] = why.__cause__.diag
        raise


def attempt(name, work):
    """Prints what comes of it, and what is refused meanwhile."""
    clock.go_on()
    refusals.clear()
    say("==", name)
    try:
        say(work())
    except NotSupportedError:
        pass
    for sql, why in refusals.items():
        say(f"refused: {why.message_primary}: {why.message_detail} {sql}")


# What is there before anything is sharded.


def message(list_name, thread, reply=0):
    """The first message of a thread, or an answer to the one before."""
    name = list_name.split("@")[0]
    m = EmailMessage()
    m["Message-ID"] = f"<{name}.{thread}.{reply}@example.com>"
    if reply:
        m["In-Reply-To"] = f"<{name}.{thread}.{reply - 1}@example.com>"
    author = (thread * 7 + reply) % USERS
    m["From"] = f"User {author} <user{author}@example.com>"
    m["To"] = list_name
    m["Subject"] = ("Re: " if reply else "") + f"Thread {thread} of {name}: grüße"
    number = thread * 3 + [*LISTS, NEW_LIST].index(list_name)
    m["Date"] = format_datetime(BEGINNING + timedelta(hours=thread * 5 + reply, minutes=number))  # no two are the same, for pages are sorted by it
    m.set_content(f"Message {reply} of thread {thread}.\n\n> as was said before\n")
    if reply == 1:
        m.add_attachment(b"\x00\x01binary\xff", maintype="application", subtype="octet-stream", filename="a.bin")
    return m


def load_lists():
    """Has the application's own command read mailboxes in."""
    for list_name in LISTS:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mbox")
            box = mailbox.mbox(path)
            for thread in range(THREADS):
                for reply in range(thread + 2):
                    box.add(message(list_name, thread, reply))
            box.close()
            call_command("hyperkitty_import", path, list_address=list_name, no_sync_mailman=True, since="1999-01-01", ignore_mtime=True, verbosity=0)


def load_users():
    readers = Group.objects.create(name="readers")
    readers.permissions.set(Permission.objects.filter(codename__startswith="view_").order_by("codename")[:5])
    change_thread = Permission.objects.get(codename="change_thread")
    for n in range(USERS):
        user = User.objects.create_user(f"user{n}", f"user{n}@example.com", PASSWORD)
        EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
        if n % 3 == 0:
            user.groups.add(readers)
        if n % 5 == 0:
            user.user_permissions.add(change_thread)
    User.objects.create_superuser("admin", "admin@example.com", PASSWORD)


def load_activity():
    """What users have done, many rows at a time."""
    threads = list(Thread.objects.order_by("mailinglist__name", "thread_id"))
    emails = list(Email.objects.order_by("mailinglist__name", "message_id"))
    tags = [Tag.objects.create(name=name) for name in ("bug", "idea", "question")]
    votes, favorites, views, taggings = {}, [], [], []
    for n, user in enumerate(User.objects.order_by("id")):
        for i in range(4):
            email = emails[(n * 3 + i * 11) % len(emails)]
            votes[user.id, email.id] = Vote(user=user, email=email, value=1 if (n + i) % 3 else -1)
        favorites += [Favorite(user=user, thread=threads[(n + i * 13) % len(threads)]) for i in range(2)]
        views += [LastView(user=user, thread=threads[(n * 5 + i * 3) % len(threads)]) for i in range(6)]
        taggings.append(Tagging(user=user, thread=threads[n % len(threads)], tag=tags[n % len(tags)]))
    Vote.objects.bulk_create(votes.values(), batch_size=100)
    Favorite.objects.bulk_create(favorites, batch_size=100)
    LastView.objects.bulk_create(views)
    Tagging.objects.bulk_create(taggings)


def load():
    load_lists()
    load_users()
    load_activity()
    say("lists", MailingList.objects.count(), "threads", Thread.objects.count(), "emails", Email.objects.count())
    say("users", User.objects.count(), "votes", Vote.objects.count(), "views", LastView.objects.count())


# What people do with their browsers.


def text_of(page):
    """The words of a page, without what differs each time."""
    body = re.sub(r"(?s)<(script|style).*?</\1>|<!--.*?-->", "", page)
    words = html.unescape(re.sub(r"<[^>]*>", " ", body))
    return "\n".join(filter(None, (re.sub(r"\s+", " ", line).strip() for line in words.splitlines())))


def get(client, path, in_order=True):
    def work():
        response = client.get(path)
        lines = text_of(response.content.decode()).splitlines()
        return "\n".join([str(response.status_code), *(lines if in_order else sorted(lines))])

    attempt("GET " + path, work)


def post(client, path, **fields):
    def work():
        response = client.post(path, fields)
        words = text_of(response.content.decode())
        return f"{response.status_code} {response.headers.get('Location', '')} {re.sub(r'csrfmiddlewaretoken.*', '', words)}"

    attempt("POST " + path, work)


def log_in(name):
    client = Client()
    attempt("log in as " + name, lambda: client.login(username=name, password=PASSWORD))
    return client


def thread_path(thread):
    return f"/hyperkitty/list/{thread.mailinglist.name}/thread/{thread.thread_id}/"


def message_path(email):
    return f"/hyperkitty/list/{email.mailinglist.name}/message/{email.message_id_hash}/"


def first_threads(count):
    return Thread.objects.order_by("mailinglist__name", "thread_id")[:count]


def read_own(client):
    """The pages that are about the user."""
    for page in ("", "favorites", "last_views", "votes"):
        get(client, "/hyperkitty/profile/" + page)
    get(client, "/user-profile/")


def read_lists(client):
    get(client, "/hyperkitty/")
    for list_name in LISTS:
        for page in ("", "latest", "2024/1/", "recent-activity", "recent-threads", "top-threads", "pop-threads", "favorites", "posted-to"):
            in_order = page not in ("favorites", "pop-threads")  # asked for in no order, and by a sum that several have
            get(client, f"/hyperkitty/list/{list_name}/{page}", in_order=in_order)


def read_threads(client):
    for thread in first_threads(4):
        get(client, thread_path(thread))
        get(client, thread_path(thread) + "replies?sort=thread&last_view=")
        get(client, message_path(thread.starting_email))


def act(client):
    """Favourites, votes and tags, given and taken back."""
    for n, thread in enumerate(first_threads(6)):
        vote = message_path(thread.starting_email) + "vote"
        post(client, thread_path(thread) + "favorite", action="add")
        post(client, vote, vote=1 if n % 2 else -1)
        post(client, thread_path(thread) + "tags", tag="bug", action="add")
        if n % 3 == 0:
            post(client, thread_path(thread) + "favorite", action="rm")
            post(client, vote, vote=0)
            post(client, thread_path(thread) + "tags", tag="bug", action="rm")


def work_off():
    """Runs the tasks that the application has left in its queue, as its worker does."""
    broker = get_broker()
    while tasks := broker.dequeue():
        for number, packed in tasks:
            task = SignedPackage.loads(packed)
            attempt(f"task {task['name']} {task['args']}", lambda: task["func"](*task["args"], **task["kwargs"]))
            broker.acknowledge(number)


def use():
    for name in ("user3", "user10"):
        client = log_in(name)
        read_own(client)
        read_lists(client)
        read_threads(client)
        act(client)
        read_own(client)
    get(Client(), thread_path(first_threads(1)[0]))
    work_off()


# What is new after tables have been sharded.


def sign_up(name):
    client = Client()
    post(client, "/accounts/signup/", username=name, email=name + "@example.com", password1=PASSWORD, password2=PASSWORD)
    get(client, "/user-profile/")
    return client


def archive(m):
    """Gives a message to the application as a mail server does."""

    def work():
        content = SimpleUploadedFile("message.txt", m.as_bytes())
        return Client(HTTP_AUTHORIZATION="Token for-tests").post("/hyperkitty/api/mailman/archive", {"mlist": m["To"], "message": content}).content.decode()

    attempt("archive " + m["Message-ID"], work)


def groups_of(name):
    user = User.objects.get(username=name)
    log = LogEntry.objects.filter(user__username="admin", user_id=User.objects.get(username="admin").pk).order_by("action_time")
    return [group.name for group in user.groups.order_by("name")], user.has_perm("hyperkitty.change_thread"), [entry.get_change_message() for entry in log]


def change_user(admin, name, **changes):
    """Changes a user in the pages of the administration, which write to its log."""
    user = User.objects.get(username=name)
    fields = {"username": name, "email": user.email, "date_joined_0": "2024-01-01", "date_joined_1": "12:00:00", "is_active": "on", **changes}
    attempt("change " + name, lambda: admin.post(f"/admin/auth/user/{user.pk}/change/", fields).status_code)
    attempt("look at " + name, lambda: groups_of(name))


def administrate():
    admin = log_in("admin")
    readers = Group.objects.get(name="readers").pk
    may_change = Permission.objects.get(codename="change_thread").pk
    change_user(admin, "user1", groups=[readers], user_permissions=[may_change])
    change_user(admin, "user1", groups=[])
    get(admin, "/admin/auth/user/?q=user15")
    attempt("delete user2", lambda: admin.post(f"/admin/auth/user/{User.objects.get(username='user2').pk}/delete/", {"post": "yes"}).status_code)
    attempt("what is left", lambda: [User.objects.filter(username="user2").exists(), EmailAddress.objects.filter(email="user2@example.com").exists()])
    thread = first_threads(2)[1]
    post(admin, thread_path(thread) + "delete", email=[email.pk for email in thread.emails.all()])


def transactions():
    """Transactions over users of several shards, as code on the ORM has them."""
    users = list(User.objects.filter(username__in=[f"user{n}" for n in range(20, 32)]).order_by("id"))
    thread = first_threads(1)[0]

    def favorites():
        return [Favorite.objects.filter(user=user, thread=thread).count() for user in users]

    def all_or_none(fail):
        try:
            with transaction.atomic():
                for user in users:
                    Favorite.objects.create(user=user, thread=thread)
                    user.hyperkitty_profile.karma = F("karma") + 1
                    user.hyperkitty_profile.save(update_fields=["karma"])
                User.objects.filter(pk=users[0].pk).update(first_name="Changed")
                if fail:
                    raise KeyError
        except KeyError:
            pass
        users[0].refresh_from_db()
        return favorites(), users[0].first_name

    def go_on_after_error():
        with transaction.atomic():
            Favorite.objects.filter(user=users[1], thread=thread).delete()
            try:
                with transaction.atomic():
                    User.objects.create(username="user5")
            except IntegrityError as why:
                say(why.__cause__.pgcode)
            Favorite.objects.filter(user=users[2], thread=thread).delete()
        return favorites()

    def whole_rows():
        """Saved by their ids alone, as the ORM does."""
        for user in users:
            view = LastView.objects.filter(user=user).order_by("view_date").first()
            view.thread = thread
            view.save()
            locked = None
            with transaction.atomic():
                locked = LastView.objects.select_for_update().filter(user=user).order_by("view_date").first()
                locked.delete()
        return [list(user.lastviews.order_by("view_date").values_list("thread__thread_id", flat=True)) for user in users]

    attempt("all are undone", lambda: all_or_none(fail=True))
    attempt("all are done", lambda: all_or_none(fail=False))
    attempt("go on after an error", go_on_after_error)
    attempt("whole rows", whole_rows)
    attempt("per user", lambda: [User.objects.filter(pk=user.pk).annotate(n=Count("favorites", distinct=True), m=Count("lastviews", distinct=True)).values_list("n", "m").get() for user in users])


def grow():
    for name in ("newcomer", "another"):
        client = sign_up(name)
        act(client)
        read_own(client)
    archive(message(LISTS[0], THREADS))
    archive(message(LISTS[0], THREADS, 1))
    archive(message(LISTS[0], THREADS, 1))  # once more
    archive(message(NEW_LIST, 0))
    work_off()
    administrate()
    transactions()
    client = log_in("user3")
    read_own(client)
    read_lists(client)
    get(client, f"/hyperkitty/list/{NEW_LIST}/")


# An app of the project's own.


def note():
    """Fills the table as it is at first."""
    model = MigrationLoader(connection).project_state(("notes", "0001_initial")).apps.get_model("notes", "Note")
    threads = list(first_threads(5))
    for n, user in enumerate(User.objects.filter(username__startswith="user").order_by("id")):
        model.objects.bulk_create(model(user_id=user.pk, thread_id=thread.pk, text=f"{'abc'[(n + i) % 3]} {n} {i}") for i, thread in enumerate(threads))
    say(model.objects.count(), "notes")


def notes():
    from notes.models import Note

    thread = first_threads(1)[0]
    for name in ("user3", "user10", "user15", "user44"):
        user = User.objects.get(username=name)
        attempt("create", lambda: Note.objects.create(user=user, thread=thread, text="x" * 150, stars=4).stars)
        attempt("change", lambda: user.notes.filter(stars__lt=5).update(stars=F("stars") + 1))
        attempt("delete", lambda: user.notes.filter(text__startswith="b").delete()[0])
        attempt("read", lambda: list(user.notes.order_by("-stars", "text").values_list("text", "stars", "seen", "thread__thread_id")))
        attempt("delete the long one", lambda: user.notes.filter(text__startswith="x").delete()[0])
        attempt("count", lambda: list(user.notes.values("stars").annotate(n=Count("id")).order_by("stars").values_list("stars", "n")))


if __name__ == "__main__":
    phase = {"load": load, "use": use, "grow": grow, "note": note, "notes": notes}[sys.argv[1]]
    try:
        with connection.execute_wrapper(note_refusals):
            phase()
    finally:
        connection.close()
