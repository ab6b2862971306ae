"""The Mailman suite's web application (HyperKitty and Postorius), as Debian's packages have it, on the database that libpq's variables name.

What a page would ask a mail server or a compiler of style sheets is switched off, and what it would find in a cache; models, migrations, commands,
views and the queries behind them are the application's own.
"""

import os

SECRET_KEY = "for tests only"
SITE_ID = 1
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "urls"
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = True
STATIC_URL = "/static/"
STATIC_ROOT = "/nonexistent"  # nobody writes there
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"

INSTALLED_APPS = [
    "hyperkitty",
    "postorius",
    "django_mailman3",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.sites",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_gravatar",
    "compressor",
    "haystack",
    "django_extensions",
    "django_q",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
]
if "WITH_NOTES" in os.environ:  # an app that is added later
    INSTALLED_APPS.append("notes")

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_mailman3.middleware.TimezoneMiddleware",
    "postorius.middleware.PostoriusMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.debug",
                "django.template.context_processors.i18n",
                "django.template.context_processors.media",
                "django.template.context_processors.static",
                "django.template.context_processors.tz",
                "django.template.context_processors.csrf",
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "django_mailman3.context_processors.common",
                "hyperkitty.context_processors.common",
                "postorius.context_processors.postorius",
            ],
        },
    },
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "NAME": os.environ["PGDATABASE"],
    }
}

AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the others take their time on purpose
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "hk_root"
LOGOUT_URL = "account_logout"
ACCOUNT_AUTHENTICATION_METHOD = "username_email"
ACCOUNT_EMAIL_REQUIRED = True
ACCOUNT_EMAIL_VERIFICATION = "none"

MAILMAN_REST_API_URL = "http://127.0.0.1:9"  # where nobody listens: there is no mail server
MAILMAN_REST_API_USER = "nobody"
MAILMAN_REST_API_PASS = "nothing"
MAILMAN_ARCHIVER_KEY = "for-tests"
MAILMAN_ARCHIVER_FROM = ("127.0.0.1",)

CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}  # so that every page asks the database
COMPRESS_ENABLED = False
COMPRESS_PRECOMPILERS = ()
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "compressor.finders.CompressorFinder",
]
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}
Q_CLUSTER = {"orm": "default", "timeout": 300, "retry": 600, "bulk": 100, "poll": 0}  # tasks wait in a table
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
