"""Where the application's pages are."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("postorius/", include("postorius.urls")),
    path("hyperkitty/", include("hyperkitty.urls")),
    path("", include("django_mailman3.urls")),
    path("accounts/", include("allauth.urls")),
    path("admin/", admin.site.urls),
]
