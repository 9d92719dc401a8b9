"""A Django project with users, sessions, a database, ATOMIC_REQUESTS and uploads, behind the native middleware."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import django
from django.conf import settings
from shop_floor import Shop

from onceward.http import IncomingRequest


def scope_of(request: IncomingRequest) -> str | None:
    """The user who is logged in."""
    user = request.raw.user
    return f"test:{user.username}" if user.is_authenticated else None


def curious(get_response: Any) -> Any:
    """A middleware that reads what is not meant for it, if it is asked to."""
    from asgiref.sync import iscoroutinefunction
    from django.utils.decorators import sync_and_async_middleware

    def read(request: Any) -> None:
        match request.headers.get("X-Read"):
            case "body":
                request.body  # noqa: B018
            case "post":
                request.POST  # noqa: B018

    @sync_and_async_middleware
    def made(get_response: Any) -> Any:
        if iscoroutinefunction(get_response):

            async def awaiting(request: Any) -> Any:
                read(request)
                return await get_response(request)

            return awaiting

        def blocking(request: Any) -> Any:
            read(request)
            return get_response(request)

        return blocking

    return made(get_response)


curious.async_capable = True  # type: ignore[attr-defined]


def configure(folder: Path, gates: dict[str, Any]) -> None:
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "project.db"), "ATOMIC_REQUESTS": True}
    settings.configure(
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="test",
        ROOT_URLCONF="project_urls",
        DATABASES={"default": {**database, "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"}}},
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django_project.curious",
            "onceward.http.django.IdempotencyMiddleware",
        ],
        ONCEWARD={**gates, "SCOPE": "django_project.scope_of", "GUARANTEE": "atomic"},
        FILE_UPLOAD_MAX_MEMORY_SIZE=1_000,
        DATA_UPLOAD_MAX_MEMORY_SIZE=2_000,
        LOGGING_CONFIG=None,
        USE_TZ=True,
    )
    django.setup()


def views(shop: Shop) -> ModuleType:
    """The URLs; models can be declared only now."""
    from django.contrib import auth
    from django.db import connection, models
    from django.http import FileResponse, HttpResponse, JsonResponse
    from django.urls import path
    from django.utils.decorators import method_decorator
    from django.views import View

    from onceward.http.django import idempotent, not_idempotent

    class Charge(models.Model):
        class Meta:
            app_label = "project"

    with connection.schema_editor() as editor:
        if "project_charge" not in connection.introspection.table_names():
            editor.create_model(Charge)

    def login(request: Any, name: str) -> Any:
        user, _ = auth.get_user_model().objects.get_or_create(username=name)
        auth.login(request, user)
        return HttpResponse(b"welcome")

    def charge(request: Any, how: str) -> Any:
        Charge.objects.create()
        if how == "raise":
            raise ValueError("rolled back")
        status = 500 if how == "return500" else 200
        body = {"charges": Charge.objects.count(), "digest": request.operation.digest, "user": request.user.username}
        return JsonResponse(body, status=status)

    def upload(request: Any) -> Any:
        shop.effect("/upload")
        files = {name: [file.name, len(file.read())] for name, file in request.FILES.items()}
        return JsonResponse({"files": files, "fields": dict(request.POST.items())})

    def file(request: Any) -> Any:
        shop.effect("/file")
        (shop.folder / "report").write_bytes(b"report " * 100)
        return FileResponse((shop.folder / "report").open("rb"))

    @not_idempotent
    def loud(request: Any) -> Any:
        return HttpResponse(str(shop.effect("/loud")))

    @method_decorator(idempotent(require_key=True, guarantee="blind"), name="dispatch")
    class Strict(View):
        def post(self, request: Any) -> Any:
            raise ValueError(f"broken {shop.effect('/strict')}")

    urls = ModuleType("project_urls")
    urls.urlpatterns = [  # type: ignore[attr-defined]
        path("login/<name>", login),
        path("charge/<how>", charge),
        path("upload", upload),
        path("file", file),
        path("loud", loud),
        path("strict", Strict.as_view()),
    ]
    return urls


def make(folder: Path, gates: dict[str, Any], *, awaits: bool) -> Any:
    """The project as an application."""
    configure(folder, gates)
    from django.core.asgi import get_asgi_application
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application

    call_command("migrate", verbosity=0)
    sys.modules["project_urls"] = views(Shop(folder))
    return get_asgi_application() if awaits else get_wsgi_application()
