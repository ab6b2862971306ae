"""Uses the application, a phase at a time, and prints what it was told, for whoever compares two databases.

    python3 drive.py load | use | look | grow

Ids that a sequence gave are not printed: shards count apart. A page that the database refuses to serve (SQLSTATE 0A000) is
printed as such.
"""

import html
import mailbox
import os
import re
import sys
import tempfile
from datetime import datetime, timedelta, timezone
from email.message import EmailMessage
from email.utils import format_datetime

import django

django.setup()

from django.contrib.admin.models import CHANGE, LogEntry  # noqa: E402
from django.contrib.auth.models import Group, Permission, User  # noqa: E402
from django.contrib.contenttypes.models import ContentType  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, NotSupportedError, connection, transaction  # noqa: E402
from django.db.models import Count, F  # noqa: E402
from django.test import Client  # noqa: E402

from allauth.account.models import EmailAddress  # noqa: E402
from hyperkitty.models import Email, Favorite, LastView, MailingList, Tag, Tagging, Thread, Vote  # noqa: E402

LISTS = ["announce@example.com", "users@example.com"]
USERS = 200
THREADS = 20  # in each list
REPLIES = 3  # to each thread
PASSWORD = "correct horse"
BEGINNING = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)


def say(*words):
    print(*words, flush=True)


def message(list_name, thread, reply=0):
    """One message: the first of a thread, or an answer to the one before."""
    name = list_name.split("@")[0]
    m = EmailMessage()
    m["Message-ID"] = f"<{name}.{thread}.{reply}@example.com>"
    if reply:
        m["In-Reply-To"] = f"<{name}.{thread}.{reply - 1}@example.com>"
    author = (thread * 7 + reply) % USERS
    m["From"] = f"User {author} <user{author}@example.com>"
    m["To"] = list_name
    m["Subject"] = ("Re: " if reply else "") + f"Thread {thread} of {name}: grüße"
    m["Date"] = format_datetime(BEGINNING + timedelta(hours=thread * 5 + reply))
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
                for reply in range(REPLIES + 1):
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


def load_activity():
    """What users do, all at once and not one by one."""
    threads = list(Thread.objects.order_by("mailinglist__name", "thread_id"))
    emails = list(Email.objects.order_by("mailinglist__name", "message_id"))
    users = list(User.objects.order_by("id"))
    tags = [Tag.objects.create(name=name) for name in ("bug", "idea", "question")]
    votes, favorites, views, taggings = [], [], [], []
    for n, user in enumerate(users):
        for i in range(4):
            votes.append(Vote(user=user, email=emails[(n * 3 + i * 11) % len(emails)], value=1 if (n + i) % 3 else -1))
        for i in range(2):
            favorites.append(Favorite(user=user, thread=threads[(n + i * 13) % len(threads)]))
        for i in range(6):
            views.append(LastView(user=user, thread=threads[(n * 5 + i * 3) % len(threads)]))
        taggings.append(Tagging(user=user, thread=threads[n % len(threads)], tag=tags[n % len(tags)]))
    Vote.objects.bulk_create({(v.user_id, v.email_id): v for v in votes}.values(), batch_size=100)
    Favorite.objects.bulk_create(favorites, batch_size=100)
    LastView.objects.bulk_create(views)
    Tagging.objects.bulk_create(taggings)


def load():
    load_lists()
    load_users()
    load_activity()
    say("lists", MailingList.objects.count(), "threads", Thread.objects.count(), "emails", Email.objects.count())
    say("users", User.objects.count(), "votes", Vote.objects.count(), "views", LastView.objects.count())


def text_of(page):
    """The words of a page, without what differs each time."""
    body = re.sub(r"(?s)<(script|style).*?</\\1>", "", page)
    body = re.sub(r'csrfmiddlewaretoken" value="[^"]*"', "", body)
    words = html.unescape(re.sub(r"<[^>]*>", " ", body))
    return "\n".join(filter(None, (re.sub(r"\s+", " ", line).strip() for line in words.splitlines())))


refusals = []


def note_refusals(execute, sql, *rest):
    """Notes what the database refuses (SQLSTATE 0A000): the application catches some of it."""
    try:
        return execute(sql, *rest)
    except NotSupportedError as why:
        refusals.append((sql, why.__cause__.diag))
        raise


def attempt(name, work):
    """Prints what came of it, or that it was refused."""
    say("==", name)
    refusals.clear()
    result = None
    try:
        result = work()
    except NotSupportedError:
        pass
    if not refusals:
        say(result)
    for sql, said in refusals:
        say("\n  ".join(("refused " + name, said.message_primary, said.message_detail, sql)))


def get(client, path):
    def work():
        response = client.get(path)
        return f"{response.status_code}\n{text_of(response.content.decode())}"
    attempt("GET " + path, work)


def post(client, path, **fields):
    def work():
        response = client.post(path, fields)
        return f"{response.status_code} {response.content.decode()[:200]}"
    attempt("POST " + path, work)


def thread_path(thread):
    return f"/hyperkitty/list/{thread.mailinglist.name}/thread/{thread.thread_id}/"


def read_pages(client):
    """What a user reads."""
    for page in ("", "favorites", "last_views", "votes", "subscriptions"):
        get(client, "/hyperkitty/profile/" + page)
    get(client, "/user-profile/")
    get(client, "/hyperkitty/")
    for list_name in LISTS:
        base = f"/hyperkitty/list/{list_name}/"
        for page in ("", "latest", "2024/1/", "recent-activity", "recent-threads", "pop-threads", "top-threads", "favorites", "posted-to", "top-posters"):
            get(client, base + page)
    get(client, "/hyperkitty/tags/")
    get(client, "/hyperkitty/api/lists/")
    get(client, "/hyperkitty/api/tags/")


def read_threads(client):
    for thread in Thread.objects.order_by("mailinglist__name", "thread_id")[:4]:
        get(client, thread_path(thread))
        get(client, thread_path(thread) + "replies?sort=thread&last_view=")
        get(client, f"/hyperkitty/list/{thread.mailinglist.name}/message/{thread.starting_email.message_id_hash}/")


def act(client):
    """What a user does."""
    for n, thread in enumerate(Thread.objects.order_by("mailinglist__name", "thread_id")[:6]):
        post(client, thread_path(thread) + "favorite", action="add")
        post(client, f"/hyperkitty/list/{thread.mailinglist.name}/message/{thread.starting_email.message_id_hash}/vote", vote=1 if n % 2 else -1)
        post(client, thread_path(thread) + "tags", tag="bug", action="add")
        if n % 3 == 0:
            post(client, thread_path(thread) + "favorite", action="rm")
            post(client, f"/hyperkitty/list/{thread.mailinglist.name}/message/{thread.starting_email.message_id_hash}/vote", vote=0)
            post(client, thread_path(thread) + "tags", tag="bug", action="rm")


def use():
    for name in ("user3", "user10", "user15"):
        client = Client()
        attempt("login " + name, lambda: client.login(username=name, password=PASSWORD))
        read_pages(client)
        read_threads(client)
        act(client)
        read_pages(client)


if __name__ == "__main__":
    try:
        with connection.execute_wrapper(note_refusals):
            {"load": load, "use": use}[sys.argv[1]]()
    finally:
        connection.close()
